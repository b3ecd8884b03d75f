package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/cli/internal/apidir"
	"github.com/codeforge-mcp/codeforge/cli/internal/setuppage"
	"github.com/codeforge-mcp/codeforge/internal/consolestyle"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

func setupCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "setup", Short: "add APIs in a browser, as api add does on a terminal",
	}
	s := setupPage{e: e, target: targetFlags(c.Flags())}
	c.Flags().StringVar(&s.apis, "apis", "apis", "`DIR` of the APIs")
	c.RunE = func(c *cobra.Command, _ []string) error { return s.servePage(c.Context()) }
	return c
}

// setupPage adds APIs by the forms of a page. It calls the functions of api add, without a terminal to ask on.
type setupPage struct {
	e      *Env
	target serverTarget
	apis   string
	server *setuppage.Server
	// ctx ends with the command, and with it the logins.
	ctx   context.Context //nolint:containedctx // logins outlive the request that begins them
	waits sync.WaitGroup

	mu      sync.Mutex // held by each request
	options *apiOptions
	view    setupView
}

// setupView is the content of the page. It contains no credential.
type setupView struct {
	// Name is the chosen API. Added is its result.
	Name, Added, Problem string
	Done                 bool
	Warnings             catalog.Problems
	// Logins are the states of the logins of the chosen API by token name. A login that has not begun has none.
	Logins map[string]string
	// Pending is the API whose credentials the page asks for. Choice names this choice in the form.
	Pending *preparedAPI
	Choice  string
	// These are set for each answer.
	Config           string // the text of an example
	Blanks, Examples []string
	APIs             []proxyapi.InspectedAPI
}

func (s *setupPage) servePage(ctx context.Context) error {
	if s.e.isInContainer() {
		return errors.New("the container cannot write apis/: run codeforge setup on the host")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer s.waits.Wait()
	defer cancel()
	server, err := setuppage.Listen(ctx)
	if err != nil {
		return err
	}
	s.ctx, s.server = ctx, server
	fmt.Fprintln(s.e.Stdout, server.Address())
	fmt.Fprintln(s.e.Stderr, "Open this address in a browser. It works in one browser only. Ctrl-C ends the page.")
	err = server.Serve(ctx, s.routes())
	if errors.Is(err, context.Canceled) {
		return silentError(ExitInterrupted)
	}
	return err
}

// routes returns the paths of the page. Each form redirects to the page, so that a reload sends no form again.
func (s *setupPage) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { s.showPage(w, false) })
	mux.HandleFunc("GET /style.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		w.Header().Set("Cache-Control", "private, max-age=1800") // the server ends while the last page loads
		_, _ = w.Write(consolestyle.Sheet())                     // an error means that the browser has gone
	})
	mux.HandleFunc("POST /done", func(w http.ResponseWriter, _ *http.Request) {
		s.showPage(w, true)
		s.server.End(nil)
	})
	for path, act := range map[string]func(context.Context, url.Values) error{
		"choose": s.chooseAPI, "add": s.addChosen, "login": s.beginLogin,
		"back": func(context.Context, url.Values) error {
			s.view = setupView{}
			return nil
		},
	} {
		mux.HandleFunc("POST /"+path, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			err := r.ParseForm()
			if err == nil {
				err = act(r.Context(), r.PostForm)
			}
			if s.view.Problem = ""; err != nil {
				s.view.Problem = err.Error()
			}
			w.Header().Set("Location", "./") // http.Redirect would make it absolute, without the random path
			w.WriteHeader(http.StatusSeeOther)
		})
	}
	return mux
}

// chooseAPI prepares the API of an example or of a document.
func (s *setupPage) chooseAPI(ctx context.Context, form url.Values) error {
	o := &apiOptions{
		target: s.target, apis: s.apis, example: form.Get("example"), json: true, // the document's summary goes to stderr
		readOnly: form.Get("bound") == "read", askWrites: form.Get("bound") == "ask",
	}
	if o.example == "" {
		u, err := url.Parse(strings.TrimSpace(form.Get("document")))
		if err != nil || u.Scheme != "https" && u.Scheme != "http" {
			return errors.New("found no URL of a document; want one that begins with https:// or http://")
		}
		o.openapi, o.server = u.String(), strings.TrimSpace(form.Get("server"))
	}
	name := cmp.Or(strings.TrimSpace(form.Get("name")), o.example)
	a, err := o.prepareAPI(ctx, &linePrompter{e: s.e}, name)
	if err == nil {
		s.options, s.view = o, setupView{Name: name, Pending: &a, Choice: rand.Text()}
	}
	return err
}

// addChosen writes the chosen API with the credentials of a form.
func (s *setupPage) addChosen(ctx context.Context, form url.Values) error {
	if s.view.Pending == nil {
		return errors.New("this form was sent already")
	}
	// The user has chosen another API since, perhaps in another tab. Its hosts must not get the key of this form.
	//defence:setup-choice
	if form.Get("choice") != s.view.Choice {
		return errors.New("this form was of an earlier choice, so no API was added; the page shows the latest choice")
	}
	a := *s.view.Pending
	var err error
	for _, blank := range apidir.ListBlanks(a.Example) {
		if a.Example, err = apidir.FillBlank(a.Example, blank, strings.TrimSpace(form.Get(blank))); err != nil {
			return err
		}
	}
	a.Entry.Credentials = slices.Clone(a.Entry.Credentials)
	for i := range a.Entry.Credentials {
		a.Entry.Credentials[i].Value = secret.New(strings.TrimSpace(form.Get("key" + strconv.Itoa(i))))
	}
	path, warnings, err := s.options.writeAPI(a)
	if err != nil {
		return err
	}
	name := s.view.Name
	added := describeAdded(name, path, s.options.waitForLoad(ctx, s.e, name, true))
	s.view = setupView{Name: name, Added: added, Warnings: warnings, Logins: map[string]string{}}
	fmt.Fprintln(s.e.Stderr, added)
	printEach(s.e.Stderr, "warning: ", convert.Each(warnings, catalog.Problem.String))
	_, list, _ := readCredentials(ctx, s.e, s.target) // without a running CodeForge there are no logins
	for _, c := range list {
		if c.API == name && c.Logins && c.State == credentialapi.StateLogin {
			s.view.Logins[c.Name] = ""
		}
	}
	return nil
}

// beginLogin begins a login as codeforge login does, in another tab of the browser. It does not wait for the user.
func (s *setupPage) beginLogin(_ context.Context, form url.Values) error {
	name := form.Get("name")
	if state, ok := s.view.Logins[name]; !ok || state != "" {
		return errors.New("this form was sent already")
	}
	logins := s.view.Logins
	logins[name] = "Log in at the provider, in the tab that opens, or at the address in the terminal. Then reload."
	s.waits.Go(func() {
		state := name + " is logged in."
		if err := (loginOptions{target: s.target}).runLogin(s.ctx, s.e, name); err != nil {
			state = "The login failed: " + err.Error() + "; codeforge login " + name + " tries again."
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		logins[name] = state
	})
	return nil
}

//go:embed setup.html
var setupHTML string

// setupTemplate escapes each value for its place in the page.
var setupTemplate = template.Must(template.New("").Parse(setupHTML))

func (s *setupPage) showPage(w http.ResponseWriter, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, cat := inspectConfig(s.e, s.apis)
	v := s.view
	v.Done, v.Examples, v.APIs = done, apidir.ListExamples(s.apis), convert.Each(cat.APIs(), hideSecrets)
	if a := v.Pending; a != nil {
		v.Blanks, v.Config = apidir.ListBlanks(a.Example), string(a.Example)
	}
	var b bytes.Buffer
	if err := setupTemplate.Execute(&b, v); err != nil {
		http.Error(w, "The page cannot be written.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes()) // an error means that the browser has gone
}
