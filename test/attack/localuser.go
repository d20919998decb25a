// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// Nobody is the user and group that local users' scripts run as.
const Nobody = 65534

// LocalUser is an attack by a user of the node on what the agent does as root.
// The scripts run with sh -e in a directory of the row, Setup as root and User,
// Between and After as Nobody. Attacks succeed when Gain, as Nobody, exits 0.
type LocalUser struct {
	Name    string `yaml:"name"`
	Of      string `yaml:"of"`      // the package that is attacked
	Check   string `yaml:"check"`   // what must stop it; empty for a control, which must gain
	Setup   string `yaml:"setup"`   // what the administrator has made
	User    string `yaml:"user"`    // before the agent looks
	Rules   []Rule `yaml:"rules"`   // what the site wants
	Between string `yaml:"between"` // after the agent looked and before it acts
	After   string `yaml:"after"`   // after it acted; then the rules leave the site
	Gain    string `yaml:"gain"`
}

// Rule is one path that the site names, below the row's directory.
type Rule struct {
	Path  string `yaml:"path"`
	Owner string `yaml:"owner"`
	Mode  string `yaml:"mode"`
}

// LocalUsers returns the rows against one package.
func LocalUsers(t testing.TB, of string) []LocalUser {
	t.Helper()
	names := map[string]bool{}
	var rows []LocalUser
	for _, r := range LoadClass[LocalUser](t, "localuser") {
		if r.Name == "" || names[r.Name] || r.Of == "" || r.Gain == "" {
			t.Fatalf("localuser.yaml: row %q needs a name of its own, a package and a gain", r.Name)
		}
		names[r.Name] = true
		if r.Of == of {
			rows = append(rows, r)
		}
	}
	return rows
}

// Stage makes the row's directory, which users can enter, and runs what comes
// before the agent. It needs root.
func (r LocalUser) Stage(t testing.TB) string {
	t.Helper()
	require.Root(t)
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := script(dir, r.Setup, 0); err != nil {
		t.Fatalf("setup: %v\n%s", err, out)
	}
	AsUser(t, dir, r.User)
	return dir
}

// AsUser runs a script of a row as Nobody; it must succeed.
func AsUser(t testing.TB, dir, text string) {
	t.Helper()
	if out, err := script(dir, text, Nobody); err != nil {
		t.Fatalf("as nobody: %v\n%s\n%s", err, text, out)
	}
}

// Gained reports whether the attack succeeded.
func (r LocalUser) Gained(dir string) bool {
	_, err := script(dir, r.Gain, Nobody)
	return err == nil
}

func script(dir, text string, id uint32) (string, error) {
	if strings.TrimSpace(text) == "" {
		return "", nil
	}
	cmd := exec.Command("/bin/sh", "-ec", text)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "D=" + dir, fmt.Sprint("U=", Nobody)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}
