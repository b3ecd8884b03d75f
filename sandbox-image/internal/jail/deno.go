package jail

import (
	"cmp"
	"strconv"
	"strings"
)

// denoArgs returns the interpreter's arguments. dir is the code directory as the interpreter sees it, and out are the
// paths of OutDir. own is the only other folder that a private run may write; it is empty for other runs. pinned is
// InterpreterSpec.Pinned.
func denoArgs(
	dir, out, own string, pinned bool, folders []Folder, net []string, ca string, memory int64, b canaryBait,
	packages CodePackages,
) []string {
	read, env := b.denoPermissions(dir)
	readFiles, writeFiles := denoFolders(dir, folders)
	if packages.Set != "" {
		read += "," + packages.dir
	}
	shared, write := TmpDir+","+SkillsDir+","+RunsDir, TmpDir+","+SkillsDir
	if own != "" {
		shared, write = own, own
	}
	if own != "" || pinned {
		shared += "," + dir + "/" + SkillDir
	}
	args := append([]string{"run", "--no-prompt", "--no-remote", "--no-config", "--no-code-cache"},
		packages.options()...)
	args = append(args,
		"--import-map="+importMap(dir, own != "" || pinned, packages), "--cert", ca,
		"--v8-flags=--max-old-space-size="+strconv.FormatInt(heapMB(memory), 10),
		"--allow-read="+shared+","+out+","+dir+"/"+ClientDir+read+readFiles,
		"--allow-write="+write+","+out+writeFiles,
	)
	switch {
	case packages.Set != "":
		args = append(args, "--allow-env")
	case env != "":
		args = append(args, "--allow-env="+env)
	}
	switch {
	case len(net) == 1 && net[0] == "*":
		args = append(args, "--allow-net")
	case len(net) > 0:
		args = append(args, "--allow-net="+strings.Join(net, ","))
	}
	return append(args, "--preload", dir+"/"+WarmFile, dir+"/"+MainFile)
}

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
