// SPDX-License-Identifier: Apache-2.0

package root

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/test/attack"
	"github.com/caisson-os/caisson/test/require"
)

// scripted is a row of builder.yaml.
type scripted struct {
	Name, Check, Script string
}

// arena is a layer with a shell, and a host with a secret.
func arena(t *testing.T) (run func(script, without string) (reached bool, said string)) {
	t.Helper()
	require.Root(t)
	require.Tool(t, "busybox")
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		require.Missing(t, "tools", err.Error())
	}
	lower, bind := t.TempDir(), t.TempDir()
	beside, err := os.MkdirTemp("/var/tmp", "caisson-test-") // the layer mounts over /tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(beside) })
	outside := filepath.Join(beside, "secret")
	for _, dir := range []string{"proc/", "sys/", "dev/", "tmp/", "run/"} {
		write(t, lower, map[string]string{dir: ""})
	}
	write(t, lower, map[string]string{"bin/sh": string(busybox), "etc/passwd": "root:x:0:0::/:/bin/sh\nu:x:12345:12345::/:/bin/sh\n", "etc/group": "u:x:12345:\n"})
	write(t, bind, map[string]string{"shown": "x\n"})
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	write(t, lower, map[string]string{"bin/socket": string(self)})
	for _, program := range []string{"bin/sh", "bin/socket"} {
		if err := os.Chmod(filepath.Join(lower, program), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(outside, []byte("a key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(outside)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Dup2(int(f.Fd()), 200); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(200) })
	env := []string{"OUTSIDE=" + outside}
	for name, ns := range map[string]string{"NETWORK": "net", "IPC": "ipc"} {
		id, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, name+"="+id)
	}
	return func(script, without string) (bool, string) {
		r := &Root{Lowers: []string{lower}, Upper: t.TempDir(), Work: t.TempDir()}
		var said []string
		err := r.RunWith(context.Background(), bind, Command{Args: []string{"/bin/sh", "-c", script}, Env: env,
			Line: func(l string) { said = append(said, l) }, without: without})
		return slices.Contains(said, "reached"), fmt.Sprint(said, err)
	}
}

func TestAttacks(t *testing.T) {
	run := arena(t)
	for _, row := range attack.LoadClass[scripted](t, "builder") {
		t.Run(row.Name, func(t *testing.T) {
			if reached, said := run(row.Script, ""); reached != (row.Check == "") {
				t.Errorf("reached: %v, %s", reached, said)
			}
		})
	}
}

// TestNoStepIsVacuous takes each step out: what it prevents must then succeed, and
// every step that protects must have a row.
func TestNoStepIsVacuous(t *testing.T) {
	run := arena(t)
	tested := map[string]bool{}
	for _, row := range attack.LoadClass[scripted](t, "builder") {
		if row.Check == "" {
			continue
		}
		tested[row.Check] = true
		t.Run(row.Name, func(t *testing.T) {
			without := row.Check
			if without == "no new privileges" { // or the kernel takes no filter
				without += ",system calls"
			}
			if reached, said := run(row.Script, without); !reached {
				t.Errorf("refused without %q, too: %s", row.Check, said)
			}
		})
	}
	make := []string{"private mounts", "descriptors of the host", "root", "proc", "sys", "devices", "scratch", "program"} // these provide, they do not protect
	for _, name := range layerSteps.Names() {
		if !tested[name] && !slices.Contains(make, name) {
			t.Errorf("no attack on step %q", name)
		}
	}
}

// TestIsolatedPrograms: what keeps a program of a layer from the host's kernel keeps one of
// the host from it, too, which reads what packages brought.
func TestIsolatedPrograms(t *testing.T) {
	require.Root(t)
	require.Tool(t, "unshare")
	for _, row := range []struct{ check, script string }{
		{"read-only proc", `p=$(cat /proc/sys/kernel/core_pattern) && echo "$p" >/proc/sys/kernel/core_pattern && echo reached`},
		{"keys", "cat /proc/keys /proc/key-users | grep -q . && echo reached"},
		{"read-only host", "touch /etc/caisson-test && rm /etc/caisson-test && echo reached"},
		{"system calls", "unshare -U true && echo reached"},
	} {
		for _, without := range []string{"", row.check} {
			var said []string
			err := Isolated(t.Context(), []string{t.TempDir()}, Command{Args: []string{"/bin/sh", "-c", row.script}, Line: func(l string) { said = append(said, l) }, without: without})
			if reached := slices.Contains(said, "reached"); reached != (without != "") {
				t.Errorf("%s, without %q: reached %v, %v, %v", row.check, without, reached, said, err)
			}
		}
	}
}
