// https://api.stripe.com/v1, Authorization: Bearer STRIPE_AUTH_TOKEN. Lists page with limit (at most 100) and
// starting_after=<last id>. Amounts are in the smallest unit of the currency; times are seconds since 1970.
declare namespace Stripe {
  interface List<T> {
    object: "list";
    data: T[];
    has_more: boolean;
    url: string;
  }
  /** GET /customers, /customers/{id}, /customers/search?query=email:'a@example.com' */
  interface Customer {
    id: string;
    email: string | null;
    name: string | null;
    currency: string | null;
    balance: number;
    created: number;
    delinquent: boolean | null;
    metadata: Record<string, string>;
  }
  /** GET /charges?customer=cus_..., /charges/{id} */
  interface Charge {
    id: string;
    amount: number;
    amount_refunded: number;
    currency: string;
    customer: string | null;
    created: number;
    description: string | null;
    paid: boolean;
    refunded: boolean;
    status: "succeeded" | "pending" | "failed";
    failure_message: string | null;
  }
  /** GET /invoices?customer=cus_...&status=open */
  interface Invoice {
    id: string;
    customer: string;
    number: string | null;
    status: "draft" | "open" | "paid" | "uncollectible" | "void" | null;
    currency: string;
    total: number;
    amount_due: number;
    amount_paid: number;
    due_date: number | null;
    created: number;
  }
  /** GET /subscriptions?customer=cus_...&status=all */
  interface Subscription {
    id: string;
    customer: string;
    status: "active" | "past_due" | "unpaid" | "canceled" | "incomplete" | "incomplete_expired" | "trialing" | "paused";
    cancel_at_period_end: boolean;
    created: number;
    items: List<{ id: string; quantity?: number; price: { id: string; unit_amount: number | null; currency: string } }>;
  }
  /** The body of an answer that is not 2xx. */
  interface Failure {
    error: { type: string; code?: string; message: string; param?: string };
  }
}
