package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// hostedClient is a client on another machine. It has no file that connect could change.
type hostedClient struct {
	// name is the user's word for the client, title the client's name in texts.
	name, title string
	// place is the place in the client where the user enters the URL.
	place string
	// hosts are the hosts to which the client leads the browser back.
	hosts []string
}

// hostedClients are the clients that connect knows. claude.ai will move to claude.com.
var hostedClients = []hostedClient{
	{"claude-ai", "claude.ai", "Settings, Connectors, Add custom connector", []string{"claude.ai", "claude.com"}},
	{
		"chatgpt", "ChatGPT", "Settings, Apps & Connectors, Advanced settings: Developer mode, then Create",
		[]string{"chatgpt.com"},
	},
}

func hostedNames() []string {
	return convert.Each(hostedClients, func(h hostedClient) string { return h.name })
}

func findHosted(name string) (hostedClient, bool) {
	for _, h := range hostedClients {
		if h.name == name {
			return h, true
		}
	}
	// No other client has a name like a host.
	isHost := name == "localhost" || strings.Contains(name, ".")
	return hostedClient{name, "the client at " + safetext.OneLine(name), "its list of MCP servers", []string{name}}, isHost
}

// hostedOutput is the JSON output of connect for a hosted client. Without an identity provider, Code signs in once as
// Tenant.
type hostedOutput struct {
	Client string `json:"client"`
	Place  string `json:"place"`
	URL    string `json:"url"`
	Issuer string `json:"issuer,omitempty"`
	Tenant string `json:"tenant,omitempty"`
	Code   string `json:"code,omitempty"`
}

// showHosted prints the values for a hosted client, and the way to log in.
func (o connectOptions) showHosted(ctx context.Context, e *Env, h hostedClient) error {
	op, err := o.target.connectOperator(ctx, e)
	if err != nil {
		return err
	}
	about, err := op.About(ctx)
	if err != nil {
		return err
	}
	if about.PublicURL == "" {
		return errors.New(h.title + " connects over the internet: set PUBLIC_URL and MCP_TOKENS_FILE as " +
			"docs/guides/hosted-clients.md explains")
	}
	out := hostedOutput{Client: h.name, Place: h.place, URL: about.PublicURL + "/mcp", Issuer: about.Issuer}
	if out.Issuer == "" {
		if out.Tenant, err = chooseTenant(ctx, op, o.tenant); err != nil {
			return err
		}
		made, err := op.NewOneTimeCode(ctx, out.Tenant, h.hosts...)
		if err != nil {
			return err
		}
		out.Code = made.Code
	}
	return printValue(e, o.json, out, true, func() {
		fmt.Fprintf(e.Stdout, "In %s, open: %s\n", h.title, out.Place)
		fmt.Fprintf(e.Stdout, "  Name             CodeForge\n")
		fmt.Fprintf(e.Stdout, "  URL              %s\n", safetext.OneLine(out.URL))
		fmt.Fprintf(e.Stdout, "  Authentication   OAuth\n")
		if out.Code == "" {
			fmt.Fprintf(e.Stdout, "Then log in at %s as a login of a tenant.\n", safetext.OneLine(out.Issuer))
			return
		}
		fmt.Fprintf(e.Stdout, "Then a page of this CodeForge opens. Enter this code there, within ten minutes:\n")
		fmt.Fprintf(e.Stdout, "  %s\n", safetext.OneLine(out.Code))
		fmt.Fprintf(e.Stdout, "It works for %s only. The page shows who asks for access as the tenant %s: approve, if it "+
			"is this client.\n", joinWithOr(convert.Each(h.hosts, safetext.OneLine)), safetext.OneLine(out.Tenant))
	})
}

// chooseTenant returns the tenant with a name. Without a name, there must be only one tenant.
func chooseTenant(ctx context.Context, op operatorapi.Client, name string) (string, error) {
	list, err := op.Tenants(ctx)
	if err != nil {
		return "", err
	}
	names := convert.Each(list.Tenants, func(t operatorapi.TenantInfo) string { return t.Name })
	for _, known := range names {
		if known == name || name == "" && len(names) == 1 {
			return known, nil
		}
	}
	switch {
	case len(names) == 0:
		return "", errors.New("a hosted client is always a tenant: set MCP_TOKENS_FILE")
	case name == "":
		return "", usageError("connect: choose a tenant with --tenant: %s", joinWithOr(names))
	}
	return "", usageError("there is no tenant %q%s", name, suggestName(name, "", names))
}

func clientsCommand(e *Env) *cobra.Command {
	c := groupCommand("clients", "list hosted clients that have logged in, or end their access")
	t := targetFlags(c.PersistentFlags())
	list := &cobra.Command{
		Use: "list", Short: "list the clients that have logged in",
		Args: cobra.NoArgs,
	}
	asJSON := jsonFlag(list.Flags())
	list.RunE = useConnection(e, t.connectOperator, func(ctx context.Context, op operatorapi.Client, _ []string) error {
		all, err := op.HostedClients(ctx)
		if err != nil {
			return err
		}
		return printList(e, *asJSON, all, "No client has logged in.", func(h operatorapi.HostedClient) {
			fmt.Fprintf(e.Stdout, "%-12s  %-12s  %-24s  %s, %s\n", safetext.OneLine(h.ID), safetext.OneLine(h.Tenant),
				safetext.OneLine(strings.Join(h.Hosts(), " ")), safetext.OneLine(h.Name), h.Used.Local().Format(time.DateTime))
		})
	})
	revoke := &cobra.Command{
		Use: "revoke ID", Short: "end the access of a client",
		Args: cobra.ExactArgs(1),
		RunE: useConnection(e, t.connectOperator, func(ctx context.Context, op operatorapi.Client, args []string) error {
			err := op.RevokeClient(ctx, args[0])
			if err == nil {
				fmt.Fprintf(e.Stdout, "The client %s has no access now.\n", safetext.OneLine(args[0]))
			}
			return err
		}),
	}
	c.AddCommand(list, revoke)
	return c
}
