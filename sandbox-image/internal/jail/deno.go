package jail

import (
	"cmp"
	"strconv"
	"strings"
)

// denoProcess is an interpreter with its permissions.
type denoProcess struct {
	// dir is the code directory as the interpreter sees it, out are the paths of OutDir, and ca is the path of the CA.
	dir, out, ca string
	// own is the only other folder that a private run may write. It is empty for other runs.
	own string
	// pinned is InterpreterSpec.Pinned.
	pinned   bool
	folders  []Folder
	packages CodePackages
	net      []string
	memory   int64 // bytes
	bait     canaryBait
}

// args returns the interpreter's arguments.
func (d denoProcess) args() []string {
	readFiles, writeFiles := denoFolders(d.dir, d.folders)
	read := ""
	if d.bait != "" {
		read = "," + d.bait.homeDir(d.dir)
	}
	if d.packages.Set != "" {
		read += "," + d.packages.dir
	}
	shared, write := TmpDir+","+SkillsDir+","+RunsDir, TmpDir+","+SkillsDir
	if d.own != "" {
		shared, write = d.own, d.own
	}
	ownSkills := d.own != "" || d.pinned
	if ownSkills {
		shared += "," + d.dir + "/" + SkillDir
	}
	args := append([]string{"run", "--no-prompt", "--no-remote", "--no-config", "--no-code-cache"},
		d.packages.options()...)
	args = append(args,
		"--import-map="+importMap(d.dir, ownSkills, d.packages), "--cert", d.ca,
		"--v8-flags=--max-old-space-size="+strconv.FormatInt(heapMB(d.memory), 10),
		"--allow-read="+shared+","+d.out+","+d.dir+"/"+ClientDir+read+readFiles,
		"--allow-write="+write+","+d.out+writeFiles, "--allow-env", "--allow-sys="+readableFacts,
	)
	switch {
	case len(d.net) == 1 && d.net[0] == "*":
		args = append(args, "--allow-net")
	case len(d.net) > 0:
		args = append(args, "--allow-net="+strings.Join(d.net, ","))
	}
	return append(args, "--preload", d.dir+"/"+WarmFile, d.dir+"/"+MainFile)
}

// readableFacts lists the facts about the machine that code may read, because SDKs do. Python shows them too. warm.js
// replaces the name of the host and the release of the kernel by constants.
const readableFacts = "homedir,uid,gid,cpus"

// importMap returns Deno's import map as a URL, which needs no file. The map sends /apis/ to the slot's clients and, if
// ownSkills, /skills/ to the folder that code cannot write. It maps prefixes, so no spelling of a file name escapes it.
func importMap(dir string, ownSkills bool, packages CodePackages) string {
	skills := ""
	if ownSkills {
		skills = `,"file://` + SkillsDir + `/":"file://` + dir + `/` + SkillDir + `/"`
	}
	return `data:application/json,{"imports":{"file:///apis/":"file://` + dir + `/` + ClientDir + `/"` + skills +
		packages.imports() + `}}`
}

// heapMB returns the limit of the JavaScript heap, in MiB. It leaves a quarter of the memory for everything else, so
// that V8 reports a heap that grows too large before sandboxd ends the run.
func heapMB(memory int64) int64 { return max(64, memory/4*3>>20) }

// replaceTmpDir replaces TmpDir in an environment by the folder that a private run may write.
func replaceTmpDir(own string, env []string) []string {
	if own == "" || own == TmpDir {
		return env
	}
	for i, e := range env {
		env[i] = strings.Replace(e, "="+TmpDir, "="+own, 1)
	}
	return append(env, "TMPDIR="+own)
}

// baseEnviron returns the interpreter's whole environment. An empty tz means UTC.
func baseEnviron(denoDir, tz string) []string {
	tz = cmp.Or(tz, "UTC")
	return []string{
		"NO_COLOR=1", "TZ=" + tz, "LANG=C.UTF-8", "HOME=" + TmpDir, "DENO_DIR=" + denoDir, "DENO_NO_UPDATE_CHECK=1",
	}
}
