package jail

import (
	"path"
	"strings"
)

// homeDir is the folder beside the code that is HOME if the run has a canary. Code cannot write to it.
const homeDir = "home"

// baitVariables hold the canary. No library reads them, and no honest code asks for them by name.
var baitVariables = [...]string{"PROD_DB_PASSWORD", "DEPLOY_TOKEN"}

// bait is a canary in files and variables that a thief searches: a value that no request of the run may carry. The
// empty bait adds neither files nor variables, and HOME stays TmpDir.
//
// Honest code must not find the canary by accident. So the profile is not the one that the AWS SDKs use by default, and
// .env is not in a folder where libraries look for it.
type bait string

// home returns the run's HOME. dir is the code directory as the interpreter sees it.
func (b bait) home(dir string) string {
	if b == "" {
		return TmpDir
	}
	return dir + "/" + homeDir
}

// folders lists the folders that files needs, outermost first, relative to the code directory.
func (b bait) folders() []string {
	if b == "" {
		return nil
	}
	return []string{homeDir, path.Join(homeDir, ".aws")}
}

// files returns the bait's files: names relative to the code directory, and contents.
func (b bait) files() map[string]string {
	if b == "" {
		return nil
	}
	// An access key ID of AWS is AKIA and 16 capitals or digits: a key of another form would betray the bait.
	key := strings.ToUpper(string(b))[:16]
	return map[string]string{
		path.Join(homeDir, ".aws/credentials"): "[production]\naws_access_key_id = AKIA" + key +
			"\naws_secret_access_key = " + string(b) + "\n",
		path.Join(homeDir, ".env"): "# production, do not commit\nDATABASE_URL=postgres://app:" + string(b) +
			"@db.internal:5432/app\nDEPLOY_TOKEN=" + string(b) + "\n",
	}
}

// environ adds the bait's variables to an environment whose HOME is TmpDir. The XDG folders, in which libraries keep
// files, stay in TmpDir.
func (b bait) environ(env []string, dir string) []string {
	if b == "" {
		return env
	}
	for i, e := range env {
		if e == "HOME="+TmpDir {
			env[i] = "HOME=" + b.home(dir)
		}
	}
	// The bait's home is read-only: without these two variables libraries would fail to write below HOME.
	env = append(env, "XDG_CACHE_HOME="+TmpDir+"/.cache", "XDG_CONFIG_HOME="+TmpDir+"/.config")
	for _, name := range baitVariables {
		env = append(env, name+"="+string(b))
	}
	return env
}

// permissions returns Deno's read and environment permissions for the bait: its home and its variables only.
func (b bait) permissions(dir string) (read, env string) {
	if b == "" {
		return "", ""
	}
	return "," + b.home(dir), "HOME," + strings.Join(baitVariables[:], ",")
}
