package jail

import (
	"path"
	"strings"
)

// homeDir is the folder beside the code that is HOME if the run has a canary. Code cannot write to it.
const homeDir = "home"

// baitVariables hold the canary. No library reads them, and no honest code asks for them by name: token names, which
// code finds in variables of their name, are in capitals. Otherwise a run without the API of a token DEPLOY_TOKEN would
// get the canary.
var baitVariables = [...]string{"prod_db_password", "deploy_token"}

// canaryBait is a canary in files and variables that a thief searches: a value that no request of the run may carry.
// The empty bait adds neither files nor variables, and HOME stays TmpDir.
//
// Honest code must not find the canary by accident. So the profile is not the one that the AWS SDKs use by default, and
// .env is not in a folder where libraries look for it.
type canaryBait string

// homeDir returns the run's HOME. dir is the code directory as the interpreter sees it.
func (b canaryBait) homeDir(dir string) string {
	if b == "" {
		return TmpDir
	}
	return dir + "/" + homeDir
}

// listFolders lists the folders that files needs, outermost first, relative to the code directory.
func (b canaryBait) listFolders() []string {
	if b == "" {
		return nil
	}
	return []string{homeDir, path.Join(homeDir, ".aws")}
}

// fileContents returns the bait's files: names relative to the code directory, and contents.
func (b canaryBait) fileContents() map[string]string {
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

// addToEnviron adds the bait's variables to an environment whose HOME is TmpDir. The XDG folders, in which libraries
// keep files, stay in TmpDir.
func (b canaryBait) addToEnviron(env []string, dir string) []string {
	if b == "" {
		return env
	}
	for i, e := range env {
		if e == "HOME="+TmpDir {
			env[i] = "HOME=" + b.homeDir(dir)
		}
	}
	// The bait's home is read-only: without these two variables libraries would fail to write below HOME.
	env = append(env, "XDG_CACHE_HOME="+TmpDir+"/.cache", "XDG_CONFIG_HOME="+TmpDir+"/.config")
	for _, name := range baitVariables {
		env = append(env, name+"="+string(b))
	}
	return env
}
