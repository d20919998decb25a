// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A kernel that was started without panic= gets it for what is left of the boot,
// the new root's init included.
func TestArmPanic(t *testing.T) {
	for line, want := range map[string]string{"quiet\n": "30", "quiet panic=0\n": "0", "panic=300 quiet\n": "0"} {
		proc := t.TempDir()
		panics := filepath.Join(proc, "sys/kernel/panic")
		if err := os.MkdirAll(filepath.Dir(panics), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"cmdline": line, "sys/kernel/panic": "0"} {
			if err := os.WriteFile(filepath.Join(proc, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		m := machine{proc: proc, say: t.Logf}
		m.armPanic()
		if got, err := os.ReadFile(panics); err != nil || string(got) != want {
			t.Errorf("started with %q: kernel.panic %q, %v; want %s", line, got, err, want)
		}
	}
}

// A key of a later release that excludes disks must not have one of them erased.
func TestTakeBootstrap(t *testing.T) {
	const head = `{"apiVersion":"","kind":"","fleet":"f","registry":"r","keys":["k"],"threshold":1`
	var said bytes.Buffer
	b := machine{say: (&console{&said}).say}
	if err := b.takeBootstrap([]byte(head + `,"newStateDisk":{"atLeast":1,"onlyModel":"X"}}`)); err != nil {
		t.Fatal(err)
	}
	if b.bootstrap.Fleet != "f" || b.bootstrap.NewStateDisk != nil || !strings.Contains(said.String(), "newStateDisk has onlyModel of a later release: no disk is erased") {
		t.Errorf("%+v\n%s", b.bootstrap, said.String())
	}
	if err := b.takeBootstrap([]byte(head + `,"needs":["later"]}`)); err == nil || !strings.Contains(err.Error(), "read site.cpio: it needs later, which this release does not know") {
		t.Errorf("err = %v", err)
	}
}

// TestForRoot: the service reads what concerns it, and an agent of 0.9.0 refuses no site.cpio
// for what only a loader must know.
func TestForRoot(t *testing.T) {
	for text, want := range map[string]string{
		`{"fleet":"a","network":[{}],"nodes":[{}],"needs":["boot-network"]}`:        `{"fleet":"a"}`,
		`{"fleet":"a","nodes":[{}],"later":1,"needs":["boot-network","key-chain"]}`: `{"fleet":"a","later":1,"needs":["key-chain"]}`,
		`{"fleet":"a"}`: `{"fleet":"a"}`,
		`no JSON`:       `no JSON`,
	} {
		if got := string(forRoot([]byte(text))); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
