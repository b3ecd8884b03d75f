package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/codeforge-mcp/codeforge/catalog/strictjson"
)

// Options configure Load. The zero Options suit a first load in Docker.
type Options struct {
	// Getenv reads the environment for credentials that name a variable. Nil means that such credentials are refused.
	Getenv func(string) string
	// Previous is the catalog in use. If a folder cannot be loaded, its API keeps the version of Previous, marked as
	// stale.
	Previous *Catalog
	// Soon reads at most 64 KiB of operations.jsonl, because the files of 500 APIs take a second. Other files wait for a
	// second Load if config.json has their digest and they decide nothing (operations.only).
	Soon bool
}

// The limits of a load. APIs beyond a limit are refused and reported. APIs that were already in force come first, then
// folders by name.
const (
	maxAPIs = 1000
	// maxSurplus is the number of further folders that are read, to close their hosts.
	maxSurplus = 1000
	// maxHosts and maxHostBytes fit the interpreter's command line.
	maxHosts     = 2000
	maxHostBytes = 96 << 10
	// maxPorts is the number of ports besides 443 and 80. The proxy listens on each port for every slot.
	maxPorts = 32
	// maxReported is the number of reported mistakes.
	maxReported = 5000
	// maxListed is the number of files of a folder without config.json that are listed.
	maxListed = 1000
)

// Load reads every apis/<name>/config.json. The catalog has all valid APIs, and is never nil. The problems name every
// mistake of every API. A bad API does not affect the others.
func Load(dir string, o Options) (*Catalog, Problems) {
	l := loadState{
		o: o, budget: readBudget{all: maxBytes, documents: maxDocuments},
		fresh: map[string]*API{}, closed: map[string]string{}, hosts: map[string]bool{}, ports: map[uint16]bool{},
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return l.keepAll(err)
	}
	defer root.Close()
	l.root = root
	names, err := l.listNames()
	if err != nil {
		return l.keepAll(err)
	}
	l.loadFolders(names)
	l.packages = l.loadPackages()
	// All folders are loaded first, because conflicts are between APIs.
	l.checkAcrossAPIs()
	c := l.buildCatalog()
	// Stable: the problems of one API stay in the order of its file.
	slices.SortStableFunc(l.problems, func(a, b Problem) int { return strings.Compare(a.API, b.API) })
	if more := len(l.problems) - maxReported; more > 0 {
		l.problems = append(l.problems[:maxReported:maxReported], strictjson.MoreMistakes(Problem{File: "apis"}, more))
	}
	return c, l.problems
}

type loadState struct {
	o        Options
	root     *os.Root
	fresh    map[string]*API
	closed   map[string]string
	problems Problems
	// hosts are the distinct host patterns of the APIs in force. hostBytes is the total length of the patterns.
	hosts     map[string]bool
	hostBytes int
	ports     map[uint16]bool // the ports of the same APIs
	budget    readBudget
	packages  Packages
}

// keepAll returns the result for an unreadable apis/: the previous catalog, with every API stale.
func (l *loadState) keepAll(err error) (*Catalog, Problems) {
	l.problems = append(l.problems, Problem{File: "apis", Found: describeReadError(err),
		Want: "a directory with one folder per API"})
	for _, a := range l.o.Previous.APIs() {
		l.keepPrevious(a.Name, "apis: "+describeReadError(err))
	}
	l.packages = l.o.Previous.Packages()
	// Hosts that were closed stay closed.
	if l.o.Previous != nil {
		maps.Copy(l.closed, l.o.Previous.closed)
	}
	return l.buildCatalog(), l.problems
}

// loadFolders loads the first maxAPIs folders with a config.json, and closes the hosts of the others.
func (l *loadState) loadFolders(names []string) {
	apis := 0
	for _, name := range names {
		if !l.hasConfig(name) {
			l.warnMisnamed(name)
			continue
		}
		apis++
		// One API must not use up the budget of the others.
		l.budget.api = maxAPIBytes
		switch {
		case apis <= maxAPIs:
			l.loadAPI(name)
		case apis <= maxAPIs+maxSurplus:
			l.refuseSurplus(name)
		// The hosts of this folder are unknown, so YOLO_MODE must not open any host.
		default:
			l.closed["*"] = name
		}
	}
	if apis > maxAPIs {
		l.problems = append(l.problems, Problem{File: "apis",
			Found: fmt.Sprintf("%d folders with a config.json", apis), Want: fmt.Sprintf("at most %d", maxAPIs)})
	}
}

// hasConfig reports whether a folder has a config.json, or an unreadable file at that place.
func (l *loadState) hasConfig(name string) bool {
	_, err := l.root.Stat(name + "/config.json")
	// An unreadable config.json still belongs to an API, whose hosts must be closed.
	return err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR)
}

// refuseSurplus refuses a folder beyond maxAPIs and closes its hosts.
func (l *loadState) refuseSurplus(name string) {
	v := l.newValidator(name)
	var a *API
	if data, err := openWithinAPIs(l.root, &l.budget).readFile(name+"/config.json", maxConfig); err == nil {
		if c, ok := v.decodeConfig(data); ok {
			a = &API{Name: name, Hosts: v.parseHosts(c.domains)}
			// A remote server's host also belongs to the API.
			if c.server != nil && c.server.URL != "" {
				if h, err := serverHost(c.server.URL); err == nil {
					a.Hosts = append(a.Hosts, h)
				}
			}
		}
	}
	// The file could not be parsed, so its hosts are unknown.
	if a == nil {
		l.closed["*"] = name
	}
	p := Problem{API: name, File: "apis/" + strictjson.QuoteKey(name),
		Found: fmt.Sprintf("one folder more than %d", maxAPIs), Want: "fewer folders with a config.json in apis/"}
	l.problems = append(l.problems, p)
	l.rejectVersion(name, a, p.String())
}

func (l *loadState) newValidator(name string) *configValidator {
	v := &configValidator{root: l.root, getenv: l.o.Getenv, budget: &l.budget, soon: l.o.Soon}
	v.API, v.File = name, "apis/"+name+"/config.json"
	return v
}

// loadAPI loads one folder.
func (l *loadState) loadAPI(name string) {
	v := l.newValidator(name)
	data, err := openWithinAPIs(l.root, &l.budget).readFile(name+"/config.json", maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return // the folder was removed after it was listed
	}
	if bad := folderProblem(name); bad != "" {
		p := Problem{API: name, File: "apis/" + strictjson.QuoteKey(name), Found: bad, Want: wantFolder(name)}
		l.problems = append(l.problems, p)
		l.rejectVersion(name, nil, p.String()) // the user meant an API, whose hosts YOLO_MODE must not open
		return
	}
	if err != nil {
		v.AddError("", describeReadError(err), fmt.Sprintf("a file of at most %d bytes", maxConfig))
		l.settleFolder(name, nil, v)
		return
	}
	c, ok := v.decodeConfig(data)
	if !ok {
		l.settleFolder(name, nil, v)
		return
	}
	a := v.buildAPI(c)
	v.readDocuments(a, l.o.Previous.API(name))
	v.warnReadable(c)
	// After all checks: no later message may quote a credential.
	v.maskProblems(c)
	l.checkBounds(a, v)
	l.settleFolder(name, a, v)
}

// checkBounds counts an API's hosts and ports. It refuses the API if all APIs together would have too many.
func (l *loadState) checkBounds(a *API, v *configValidator) {
	n, size := 0, 0
	// A copy, because the API may still be refused.
	ports := maps.Clone(l.ports)
	for _, h := range a.Hosts {
		if h.Port() != 0 {
			ports[h.Port()] = true
		}
		if !l.hosts[h.String()] {
			n, size = n+1, size+len(h.String())+1
		}
	}
	if len(l.hosts)+n > maxHosts || l.hostBytes+size > maxHostBytes {
		v.AddError("domains", fmt.Sprintf("%d host names in addition to %d of other APIs", n, len(l.hosts)),
			fmt.Sprintf("at most %d, and %d bytes, in all APIs together", maxHosts, maxHostBytes))
		return
	}
	if len(ports) > maxPorts {
		v.AddError("domains", fmt.Sprintf("%d ports in addition to %d of other APIs", len(ports)-len(l.ports), len(l.ports)),
			fmt.Sprintf("at most %d in all APIs together", maxPorts))
		return
	}
	if !v.Failed {
		l.addHosts(a)
	}
}

// addHosts adds the hosts and ports of an API that is in force.
func (l *loadState) addHosts(a *API) {
	for _, h := range a.Hosts {
		if !l.hosts[h.String()] {
			l.hosts[h.String()] = true
			l.hostBytes += len(h.String()) + 1
		}
		if h.Port() != 0 {
			l.ports[h.Port()] = true
		}
	}
}

// settleFolder puts a folder's new version in force, or rejects it.
func (l *loadState) settleFolder(name string, a *API, v *configValidator) {
	l.problems = append(l.problems, v.Problems...)
	if more := v.Count - len(v.Problems); more > 0 {
		l.problems = append(l.problems, strictjson.MoreMistakes(Problem{API: name, File: v.File, Severity: Warning}, more))
	}
	errs := v.Problems.Errors()
	if len(errs) == 0 {
		a.digest = a.contentDigest()
		l.fresh[name] = a
		return
	}
	l.rejectVersion(name, a, errs[0].String())
}

// rejectVersion keeps the previous version instead of a bad one. If there is no previous version, it closes the API's
// hosts: those of the bad version, or the last known ones if it could not be parsed. If its hosts were never known,
// every host may belong to the API, so all hosts count as closed.
func (l *loadState) rejectVersion(name string, bad *API, why string) {
	// The previous version conflicts with the other APIs, too.
	if bad != nil && bad.Stale != "" {
		delete(l.fresh, name)
	} else if l.keepPrevious(name, why) {
		return
	}
	if bad != nil {
		for _, h := range bad.Hosts {
			l.closed[h.String()] = name
		}
		return
	}
	known := false
	if l.o.Previous != nil {
		for pattern, api := range l.o.Previous.closed {
			if api == name {
				l.closed[pattern], known = name, true
			}
		}
	}
	if !known {
		l.closed["*"] = name
	}
}

// keepPrevious puts the previous version of an API back in force, marked as stale. It reports whether there is one.
func (l *loadState) keepPrevious(name, why string) bool {
	delete(l.fresh, name)
	old := l.o.Previous.API(name)
	if old == nil {
		return false
	}
	// A copy: the previous catalog is immutable and may be in use.
	stale := *old
	stale.Stale = why
	l.addHosts(old)
	l.fresh[name] = &stale
	return true
}

func (l *loadState) buildCatalog() *Catalog {
	c := &Catalog{closed: l.closed, packages: l.packages}
	for _, a := range l.fresh {
		if a.Stale != "" {
			a.digest = a.contentDigest()
		}
		// An unchanged API keeps its pointer: see API.
		if old := l.o.Previous.API(a.Name); old != nil && old.digest == a.digest {
			a = old
		}
		c.apis = append(c.apis, a)
	}
	slices.SortFunc(c.apis, func(x, y *API) int { return strings.Compare(x.Name, y.Name) })
	// Sorted, because the version must not depend on the order of a map.
	c.version = versionOf(c.apis, slices.Concat(slices.Sorted(maps.Keys(l.closed)), l.packages.Pins,
		[]string{l.packages.Registry, l.packages.Index}, l.packages.IndexHosts))
	c.buildIndex()
	return c
}
