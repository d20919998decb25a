// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/itemtest"
)

// secret is a command that compares a variable with what is in a file of root's.
func secret(t *testing.T, value string) Command {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(value), 0o400); err != nil {
		t.Fatal(err)
	}
	c := sh(t, `test "$TOKEN" = "$(cat "$1")"`, file)
	c.Secrets = map[string]string{"TOKEN": file}
	return c
}

func TestSecretsInTheEnvironment(t *testing.T) {
	for _, value := range []string{"hunter2", "hunter2\n", "a 'b' \"c\" $HOME %n \\ é\nand a line", "=", "-n"} {
		if err := run(t, new(Group), secret(t, value)); err != nil {
			t.Errorf("%q: %v", value, err)
		}
	}
	c := secret(t, "a\x00b")
	if _, err := new(Group).Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), "NUL") || strings.Contains(err.Error(), "a\x00b") {
		t.Errorf("a NUL: %v", err)
	}
	c.Secrets["TOKEN"] += ".gone"
	if _, err := new(Group).Start(t.Context(), c); err == nil {
		t.Error("a program starts without its secret")
	}
}

// The file that a service is started by has the name of the secret's file.
func TestALaunchHasNoSecret(t *testing.T) {
	c := secret(t, "hunter2")
	file := filepath.Join(t.TempDir(), "x.launch")
	if err := c.save(file); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(data), "hunter2") || !strings.Contains(string(data), c.Secrets["TOKEN"]) {
		t.Errorf("%s, %v", data, err)
	}
}

func TestSecretsOfAService(t *testing.T) {
	if !itemtest.InSystemd(t) {
		return
	}
	c := secret(t, "a 'b' \"c\" $HOME %n \\ é\nand a line")
	if err := run(t, Service{}, c); err != nil {
		t.Error(err)
	}
	c = secret(t, "hunter2") // if it crashed, nobody would be given what is in its memory
	c.Args = []string{"/bin/grep", "-q", "^Max core file size  *1  *1  *bytes", "/proc/self/limits"}
	if err := run(t, Service{}, c); err != nil {
		t.Errorf("the limit of its dumps: %v", err)
	}
}
