// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"bytes"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/tell/screen"
)

// A key of a later release that excludes disks must not have one of them erased.
func TestTakeBootstrap(t *testing.T) {
	const head = `{"apiVersion":"","kind":"","fleet":"f","registry":"r","keys":["k"],"threshold":1`
	var said bytes.Buffer
	b := machine{say: screen.Console{W: &said}.Say}
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
