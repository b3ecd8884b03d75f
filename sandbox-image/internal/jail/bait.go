package jail

import (
	"path"
	"strings"
)

// homeDir is the folder beside the code that is the run's home where it has a canary. Code cannot write to it.
const homeDir = "home"

// The variables that hold the canary. No library reads them by itself, and no honest code asks for them by name.
var baitVariables = [...]string{"PROD_DB_PASSWORD", "DEPLOY_TOKEN"}

// bait is a canary in files and variables that a thief searches: a value that no request of the run may carry. The
// empty bait is none, and home is TmpDir then.
//
// Honest code must not come upon it: the profile is not the one that the AWS SDKs use, and .env is not in a folder
// where libraries look for it.
type bait string

// home is the run's home. dir is the code directory, as the interpreter sees it.
func (b bait) home(dir string) string {
	if b == "" {
		return TmpDir
	}
	return dir + "/" + homeDir
}

// folders are those that files need, outermost first, relative to the code directory.
func (b bait) folders() []string {
	if b == "" {
		return nil
	}
	return []string{homeDir, path.Join(homeDir, ".aws")}
}

// files are the bait's, relative to the code directory.
func (b bait) files() map[string]string {
	if b == "" {
		return nil
	}
	key := strings.ToUpper(string(b))[:16]
	return map[string]string{
		path.Join(homeDir, ".aws/credentials"): "[production]\naws_access_key_id = AKIA" + key +
			"\naws_secret_access_key = " + string(b) + "\n",
		path.Join(homeDir, ".env"): "# production, do not commit\nDATABASE_URL=postgres://app:" + string(b) +
			"@db.internal:5432/app\nDEPLOY_TOKEN=" + string(b) + "\n",
	}
}

// environ adds the bait's variables to an environment in which HOME is TmpDir. What libraries keep between runs remains
// in TmpDir.
func (b bait) environ(env []string, dir string) []string {
	if b == "" {
		return env
	}
	for i, e := range env {
		if e == "HOME="+TmpDir {
			env[i] = "HOME=" + b.home(dir)
		}
	}
	env = append(env, "XDG_CACHE_HOME="+TmpDir+"/.cache", "XDG_CONFIG_HOME="+TmpDir+"/.config")
	for _, name := range baitVariables {
		env = append(env, name+"="+string(b))
	}
	return env
}

// permissions let code see the bait in Deno: its home and these variables, and no others.
func (b bait) permissions(dir string) (read, env string) {
	if b == "" {
		return "", ""
	}
	return "," + b.home(dir), "HOME," + strings.Join(baitVariables[:], ",")
}
