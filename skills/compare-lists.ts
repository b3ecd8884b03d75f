/**
 * @description Compare two lists of objects, for instance of two APIs, by a key: what only one has, and which fields differ.
 *
 *   import { compare, table } from "/skills/compare-lists.ts";
 *   const result = compare(customers, contacts, {
 *     left: (c) => c.email.toLowerCase(),
 *     right: (c) => c.properties.email.toLowerCase(),
 *     fields: { name: [(c) => c.name, (c) => c.properties.fullname] },
 *   });
 *   console.log(table(result));
 */

export interface Comparing<A, B> {
  /** Return the key of an item on each side. Items without a key are counted, but not compared. */
  left: (item: A) => string | number | null | undefined;
  right: (item: B) => string | number | null | undefined;
  /** The fields to compare of items that both sides have: a name, and a function for each side that reads the value. */
  fields?: Record<string, [(item: A) => unknown, (item: B) => unknown]>;
}

export interface Difference {
  key: string;
  field: string;
  left: unknown;
  right: unknown;
}

export interface Comparison<A, B> {
  onlyLeft: A[];
  onlyRight: B[];
  both: number;
  differences: Difference[];
  /** The keys of items whose key an earlier item of the same side has, and the number of items without a key. */
  duplicates: { left: string[]; right: string[] };
  keyless: { left: number; right: number };
}

/** Compares two lists, and changes neither. If items of one side have the same key, it compares only the first. */
export function compare<A, B>(left: A[], right: B[], how: Comparing<A, B>): Comparison<A, B> {
  const a = index(left, how.left);
  const b = index(right, how.right);
  const result: Comparison<A, B> = {
    onlyLeft: [],
    onlyRight: [],
    both: 0,
    differences: [],
    duplicates: { left: a.duplicates, right: b.duplicates },
    keyless: { left: a.keyless, right: b.keyless },
  };
  for (const [key, item] of a.items) {
    const other = b.items.get(key);
    if (other === undefined) {
      result.onlyLeft.push(item);
      continue;
    }
    result.both++;
    for (const [field, [readLeft, readRight]] of Object.entries(how.fields ?? {})) {
      const l = readLeft(item), r = readRight(other);
      if (!same(l, r)) result.differences.push({ key, field, left: l, right: r });
    }
  }
  for (const [key, item] of b.items) {
    if (!a.items.has(key)) result.onlyRight.push(item);
  }
  return result;
}

/** Returns a short text of a comparison: the counts, then the first differences, at most `most`. */
export function table<A, B>(c: Comparison<A, B>, most = 20): string {
  const lines = [
    `both ${c.both}, only left ${c.onlyLeft.length}, only right ${c.onlyRight.length}, fields that differ ${c.differences.length}`,
  ];
  for (const side of ["left", "right"] as const) {
    if (c.duplicates[side].length) lines.push(`${side}: ${c.duplicates[side].length} keys occur twice, e.g. ${c.duplicates[side].slice(0, 3).join(", ")}`);
    if (c.keyless[side]) lines.push(`${side}: ${c.keyless[side]} items have no key`);
  }
  for (const d of c.differences.slice(0, most)) {
    lines.push(`${d.key}  ${d.field}: ${JSON.stringify(d.left)} | ${JSON.stringify(d.right)}`);
  }
  if (c.differences.length > most) lines.push(`... and ${c.differences.length - most} more`);
  return lines.join("\n");
}

function index<T>(list: T[], keyOf: (item: T) => string | number | null | undefined) {
  const items = new Map<string, T>();
  const duplicates: string[] = [];
  let keyless = 0;
  for (const item of list) {
    const key = keyOf(item);
    if (key === null || key === undefined || key === "") keyless++;
    else if (items.has(String(key))) duplicates.push(String(key));
    else items.set(String(key), item);
  }
  return { items, duplicates, keyless };
}

function same(a: unknown, b: unknown): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}
