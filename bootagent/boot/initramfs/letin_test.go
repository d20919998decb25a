// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"crypto/ecdsa"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/rescue"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/media"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
)

// locked is a loader that boots nothing, with a rescue key that counts.
type locked struct {
	*published
	key   *ecdsa.PrivateKey
	shown chan context.Context // of each shell
}

func newLocked(t *testing.T, shell bool) *locked {
	t.Helper()
	l := &locked{published: publish(t), key: fixture.NewKey(t), shown: make(chan context.Context, 8)}
	keys := l.FirstKeys(fixture.NewKey(t))
	keys.Roles.Rescue = fixture.RoleOf(l.key)
	l.machine.bootstrap.Chain = l.Anchor(keys)
	l.machine.id = trust.Identity{Node: fixture.Node}
	l.chooser.help.root = t.TempDir()
	l.machine.proc = l.chooser.help.root + "/proc"
	l.file("/proc/sys/kernel/random/boot_id", "boot 1")
	l.chooser.help.shell = func(ctx context.Context) error {
		l.shown <- ctx
		<-ctx.Done()
		return nil
	}
	files := []string{paths.Run + "/x", "/sys/block/sda/size", "/dev/x"}
	if shell {
		files = append(files, paths.Busybox)
	}
	for _, name := range files {
		l.file(name, "0")
	}
	return l
}

func (l *locked) file(name, text string) {
	l.t.Helper()
	name = filepath.Join(l.chooser.help.root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		l.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		l.t.Fatal(err)
	}
}

func (l *locked) book() *rescue.Book {
	l.t.Helper()
	b, err := rescue.Read(l.chooser.help.root, bootID(l.machine.proc))
	if err != nil {
		l.t.Fatal(err)
	}
	return b
}

// TestAFailingLoaderLetsIn: the screen has the code, a statement for it gives the console a shell
// once, and the shell ends before a root is entered.
func TestAFailingLoaderLetsIn(t *testing.T) {
	l := newLocked(t, true)
	said := l.chooser.help.letIn(t.Context())
	code := l.book().Code
	if code == "" || !strings.Contains(said, "code "+code) || l.chooser.help.code != code || len(l.shown) != 0 {
		t.Fatalf("%q, code %q", said, code)
	}
	l.Rescue(spec.Rescue{Code: code, Console: true, Reason: "no network"}, l.key)
	for range 2 { // each try looks
		if said = l.chooser.help.letIn(t.Context()); !strings.Contains(said, "a shell is on the console for 1h0m0s: no network") {
			t.Errorf("%q", said)
		}
	}
	ctx := <-l.shown
	l.chooser.help.shut()
	if ctx.Err() == nil || len(l.shown) != 0 {
		t.Error("the shell goes on, or there are two")
	}
	if b := l.book(); b.Times != 1 || b.Open == nil { // which the node's agent goes on with
		t.Errorf("%+v", b)
	}
	l.file("/proc/sys/kernel/random/boot_id", "boot 2")
	l.chooser.help.running.Unlock() // as after a start
	if said = l.chooser.help.letIn(t.Context()); !strings.Contains(said, "code ") || strings.Contains(said, code) || len(l.shown) != 0 {
		t.Errorf("after a reboot: %q", said)
	}
}

// TestARevokedKeyEndsTheLoadersShell: also where it is not known any more which keys count.
func TestARevokedKeyEndsTheLoadersShell(t *testing.T) {
	for name, revoke := range map[string]func(l *locked){
		"another key counts": func(l *locked) {
			keys := l.FirstKeys(fixture.NewKey(t))
			keys.Roles.Rescue = fixture.RoleOf(fixture.NewKey(t))
			l.machine.bootstrap.Chain = l.Anchor(keys)
		},
		"none counts": func(l *locked) { l.machine.bootstrap.Chain = nil },
		"it is not known": func(l *locked) {
			if err := l.disk.folder.SaveKeys(2, []byte("{")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLocked(t, true)
			l.chooser.help.letIn(t.Context())
			l.Rescue(spec.Rescue{Code: l.book().Code, Console: true}, l.key)
			l.chooser.help.letIn(t.Context())
			ctx := <-l.shown
			revoke(l)
			if said := l.chooser.help.letIn(t.Context()); ctx.Err() == nil || strings.Contains(said, "a shell is on") {
				t.Errorf("the shell goes on: %q", said)
			}
		})
	}
}

// TestAFailingLoaderStaysClosed: whatever else is offered.
func TestAFailingLoaderStaysClosed(t *testing.T) {
	l := newLocked(t, true)
	l.chooser.help.letIn(t.Context())
	code := l.book().Code
	for name, offer := range map[string]func(){
		"an operator's key": func() { l.Rescue(spec.Rescue{Code: code, Console: true}, l.Operator) },
		"another code":      func() { l.Rescue(spec.Rescue{Code: "22222-22222", Console: true}, l.key) },
		"another node":      func() { l.Rescue(spec.Rescue{Code: code, Console: true, Node: "other"}, l.key) },
		"ssh alone, which counts once the node runs": func() {
			l.Rescue(spec.Rescue{Code: code, SSHKeys: []string{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"}}, l.key)
		},
	} {
		offer()
		if said := l.chooser.help.letIn(t.Context()); !strings.Contains(said, "code "+code) || len(l.shown) != 0 || l.book().Open != nil {
			t.Errorf("%s: %q", name, said)
		}
	}
	if err := l.disk.folder.SaveKeys(2, []byte("{")); err != nil {
		t.Fatal(err)
	}
	l.Rescue(spec.Rescue{Code: code, Console: true}, l.key)
	if said := l.chooser.help.letIn(t.Context()); !strings.Contains(said, "no rescue key counts") || len(l.shown) != 0 || l.book().Open != nil {
		t.Errorf("with a key that a damaged version may revoke: %q", said)
	}
	l.machine.bootstrap.Chain = nil
	if said := l.chooser.help.letIn(t.Context()); said != "" {
		t.Errorf("where no rescue key counts: %q", said)
	}
}

// TestAMediumBeforeALoaderWithoutNetwork: and one without a shell leaves it for the node.
func TestAMediumBeforeALoaderWithoutNetwork(t *testing.T) {
	for _, shell := range []bool{true, false} {
		l := newLocked(t, shell)
		l.ways.source = nil
		said := l.chooser.help.letIn(t.Context())
		if strings.Contains(said, "has no shell") == shell {
			t.Errorf("%q", said)
		}
		c := l.Rescue(spec.Rescue{Code: l.book().Code, Console: true}, l.key)
		l.file("/sys/block/sr0/size", "100")
		f, err := os.Create(filepath.Join(l.chooser.help.root, "/dev/sr0"))
		if err == nil {
			err = media.WriteRescue(f, c.SaveRescue(), fixture.Now())
		}
		if err != nil {
			t.Fatal(err)
		}
		f.Close() // only read from now on
		said = l.chooser.help.letIn(t.Context())
		if open := l.book().Open != nil; open != shell || strings.Contains(said, "a shell is on the console") != shell {
			t.Errorf("shell %t: %q", shell, said)
		}
		if shell {
			<-l.shown
			l.chooser.help.shut()
		}
	}
}
