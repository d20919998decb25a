// SPDX-License-Identifier: Apache-2.0

package rescue

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/media/format"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/test/fixture"
)

// block adds a block device with content.
func (m *Media) block(t *testing.T, name, label, file string, c trust.Candidate) {
	t.Helper()
	for _, dir := range []string{filepath.Join(m.Sys, "block", name), m.Dev} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(m.Sys, "block", name, "size"), []byte("2048\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(m.Dev, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // the test reads it
	if err := format.ISOData(f, label, file, fixture.Now(), c.SaveRescue()); err != nil {
		t.Fatal(err)
	}
}

// TestMedium: a medium is read when it comes, and only one that is meant; one that stays is not
// read again, and after a restart of the agent it is known.
func TestMedium(t *testing.T) {
	w := newWorld(t)
	b := w.book("boot 1")
	c := w.statement(b.Code, 60)
	m := &Media{Sys: t.TempDir(), Dev: t.TempDir()}
	m.block(t, "sda", "OTHER", paths.RescueFile, c)
	m.block(t, "sdb", paths.RescueLabel, "README", c)
	m.block(t, "loop0", paths.RescueLabel, paths.RescueFile, c)
	if got := m.News(); len(got) != 0 {
		t.Errorf("%d statements", len(got))
	}
	m.block(t, "sr0", paths.RescueLabel, paths.RescueFile, c)
	got := m.News()
	if len(got) != 1 || !bytes.Equal(got[0].Document, c.Document) {
		t.Fatalf("%+v", got)
	}
	if o, err := b.Offer(got[0], w.node, 0); err != nil || !o.Console {
		t.Errorf("%+v, %v", o, err)
	}
	if len(m.News()) != 0 {
		t.Error("it is read again")
	}
	got = (&Media{Sys: m.Sys, Dev: m.Dev}).News()
	if len(got) != 1 {
		t.Fatal(got)
	}
	if _, err := w.book("boot 1").Offer(got[0], w.node, 0); err != ErrKnown { //nolint:errorlint // as it is
		t.Errorf("a medium that was left in the machine: %v", err)
	}
	if b := w.book("boot 2"); b.Code == "" {
		t.Error("no code")
	} else if _, err := b.Offer(got[0], w.node, 0); err == nil || b.Open != nil {
		t.Error("a medium that was left in the machine opens it after a reboot")
	}
}

// FuzzReadISO: whatever somebody puts into the machine.
func FuzzReadISO(f *testing.F) {
	name := filepath.Join(f.TempDir(), "iso")
	file, err := os.Create(name)
	if err != nil {
		f.Fatal(err)
	}
	if err := format.ISOData(file, paths.RescueLabel, paths.RescueFile, fixture.Now(), []byte("{}")); err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[volumeAt:])
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := readISO(bytes.NewReader(append(make([]byte, volumeAt), data...)))
		if err == nil && len(got) > trust.MaxSaved {
			t.Errorf("%d bytes", len(got))
		}
	})
}
