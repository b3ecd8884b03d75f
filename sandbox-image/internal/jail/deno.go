package jail

import "strconv"

// denoArgs is the interpreter's command line after the program's name. dir is the code directory, as the interpreter
// sees it.
func denoArgs(dir string, net []string, ca string, memory int64, b bait) []string {
	read, env := b.permissions(dir)
	args := []string{
		"run", "--no-prompt", "--no-remote", "--no-npm", "--no-config", "--no-lock", "--no-code-cache",
		"--import-map=" + imports(dir), "--cert", ca,
		"--v8-flags=--max-old-space-size=" + strconv.FormatInt(heapMB(memory), 10),
		"--allow-read=" + TmpDir + "," + SkillsDir + "," + RunsDir + "," + dir + "/" + ClientDir + read,
		"--allow-write=" + TmpDir + "," + SkillsDir,
	}
	if env != "" {
		args = append(args, "--allow-env="+env)
	}
	switch {
	case len(net) == 1 && net[0] == "*":
		args = append(args, "--allow-net")
	case len(net) > 0:
		args = append(args, "--allow-net="+join(net))
	}
	return append(args, "--preload", dir+"/"+WarmFile, dir+"/"+MainFile)
}

// imports is the map by which code imports the clients of its own slot from /apis/, as a URL, which needs no file.
func imports(dir string) string {
	return `data:application/json,{"imports":{"file:///apis/":"file://` + dir + `/` + ClientDir + `/"}}`
}

func join(list []string) string {
	out := list[0]
	for _, s := range list[1:] {
		out += "," + s
	}
	return out
}

// heapMB leaves a quarter of the memory to everything but the JavaScript heap, so that a heap that grows too large ends
// with V8's own message.
func heapMB(memory int64) int64 { return max(64, memory/4*3>>20) }

// environ is the interpreter's whole environment.
func environ(denoDir, tz string) []string {
	if tz == "" {
		tz = "UTC"
	}
	return []string{
		"NO_COLOR=1", "TZ=" + tz, "LANG=C.UTF-8", "HOME=" + TmpDir, "DENO_DIR=" + denoDir, "DENO_NO_UPDATE_CHECK=1",
	}
}
