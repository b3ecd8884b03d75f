package attack

import (
	"regexp"
	"slices"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// modesDiffer lists the attacks that one mode could stop and another let through, with the reason. Each pattern matches a
// section and a name, like CODEFORGE_ATTACK. The other attacks only reach the proxy, mcp-server or docker-shim. These are
// the same programs with the same catalog in all modes.
var modesDiffer = []struct {
	why  string
	rows *regexp.Regexp
}{
	{"each mode confines code by other means", regexp.MustCompile(
		`^C/([^i]|imports from afar|importing \S+ (as text|in any other way))|^[AG]/escaped: |^A/.*(two slots meet|private file)`)},
	{"each mode confines MCP servers by other means", regexp.MustCompile(
		`^S/((attempt|child) of a server|a server (opens|looks)|two servers meet|fork bomb|control: a server)`)},
	{"each mode recognizes a slot in another way", regexp.MustCompile(
		`^A/(the answer to another run|late messages|(host|name of an API) outside the run|control: the name to its own host)|` +
			`^T/tenants: (control: the credential|the host of another's API|files of another)`)},
	{"each mode builds its own network for the slots", regexp.MustCompile(
		`^A/(an address as URL|the synthetic address|control: (plain http|\S+_TOKEN at its own port)|ports that no API has|` +
			`a port of ports\.test|no SNI|name that resolves to (127|169|10)\.)|^M/.*(socket for logins|forged redirect|own API through)|` +
			`^S/(the control API|a host beside the tools')`)},
	{"each mode mounts other files", regexp.MustCompile(
		`^G/(a (symbolic|hard) link|a directory named|update_skill through)|^M/stored tokens|^P/control: code that finds|` +
			`^T/tenants: a token that is taken away`)},
	{"each mode counts memory and bounds files by other means", regexp.MustCompile(
		`^F/(buffer bomb|escaped: memory bomb|(Python: )?shared pages|pipes|Python: (buffers of|pipes|thousands of sockets)|` +
			`thousands of sockets|64 signed bodies|memory of the proxy: 64)|^F/.*(files? (flood|in)|files of \d)`)},
	{"each mode ends processes by other means", regexp.MustCompile(
		`^F/.*(endless loop|(workers|threads) without end|storm of|fork bomb|stay behind|not end|leaves in the middle)`)},
	{"each mode publishes the endpoint in another way", regexp.MustCompile(
		`^E/(foreign Host$|Host of the machine|no bearer|control: the right bearer|slow headers)`)},
	{"each mode keeps the operator's sockets elsewhere", regexp.MustCompile(
		`^P/(.* approved from the sandbox|mcp-server approves|on a terminal: what a run prints)`)},
}

// inDocker matches attacks in which a pod cannot differ from a container of Docker, though both differ from embedded mode.
// Both run sandboxd in a container, which starts the children of servers, and counts memory and files, with the same
// code. The other attacks show what the kubelet decides: mounts, namespaces, filters, limits and addresses.
var inDocker = regexp.MustCompile(
	`^S/child of a server|^F/(buffer bomb|many small files|files of|escaped: memory bomb in children)|` + bombs +
		`|^F/.*(a huge file|sparse file|buffers of|open and removed|storm of)`)

// oneUser matches attacks that embedded mode mounts as root only. They take many seconds to show that one more kind of
// memory counts. As an ordinary user, sandboxd counts this memory with the same code. Other memory bombs show that it may
// then read the figures of a run's processes.
var oneUser = regexp.MustCompile(bombs)

// bombs matches memory bombs by kinds of memory that sandboxd counts with the same code for each user and in each
// container.
const bombs = `^F/escaped: memory bomb in (attributes|files|memfds on|page tables|pages of|pairs|pipes|shared pages|sockets to)`

// needsBothUsers reports whether embedded mode mounts an attack by Python, or by code that has left Deno, as an ordinary
// user too.
func (a Attack) needsBothUsers() bool {
	return !oneUser.MatchString(a.Section+"/"+a.Name) && (a.Language != python || a.WhyModesDiffer() != "")
}

// WhyModesDiffer returns why the modes could differ in an attack, or an empty string if they cannot.
func (a Attack) WhyModesDiffer() string {
	for _, d := range modesDiffer {
		if d.rows.MatchString(a.Section + "/" + a.Name) {
			return d.why
		}
	}
	return ""
}

// IsMountedIn reports whether a mode's suite mounts the attack. Embedded mode mounts those that exist there. The other
// modes mount those that exist there alone, and those in which the modes could differ. Kubernetes leaves some to Docker.
func (a Attack) IsMountedIn(mode world.Mode) bool {
	if len(a.Only) > 0 {
		return slices.Contains(a.Only, mode)
	}
	return mode == world.Embedded || a.WhyModesDiffer() != "" && (mode == world.Docker || !inDocker.MatchString(a.Section+"/"+a.Name))
}
