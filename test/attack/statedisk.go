// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// StateDisk is one row of statedisk.yaml: what somebody with a screwdriver, a USB
// stick or the rights of a former user has done to a node's memory. The node is of
// fleet metal-a and has the UUID of [StateDiskMachine].
type StateDisk struct {
	Name  string      `yaml:"name"`
	Check string      `yaml:"check"` // "package/name" of the check that must see it; empty for a control
	Named string      `yaml:"named"` // partition UUID that the site names
	Disks []Partition `yaml:"disks"`
	Lines []Line      `yaml:"lines"` // of the journal, with good checksums
	// Revert is what was done to the revert script of a script that ran; the words
	// are those of the test that does it.
	Revert string `yaml:"revert"`
	// Record is what somebody wrote down of a script's last run; the boot is "ours".
	Record string `yaml:"record"`
	Uses   string `yaml:"uses"` // device that the node must use, empty for none
	Says   string `yaml:"says"` // part of what it must say
}

// StateDiskMachine is the SMBIOS UUID of the node.
const StateDiskMachine = "4c4c4544-0000-2010-8020-80c04f202020"

// Partition is one that the kernel shows.
type Partition struct {
	Device string            `yaml:"device"`
	Path   string            `yaml:"path"`  // of its disk below /sys/devices
	Facts  map[string]string `yaml:"facts"` // files of sysfs, below /sys/devices
	Label  string            `yaml:"label"` // caisson-state when empty
	UUID   string            `yaml:"uuid"`
	Sector string            `yaml:"sector"` // beginning of the first sector of its disk
	Broken bool              `yaml:"broken"` // it has no file system
	Files  map[string]string `yaml:"files"`  // below its top directory: text, or @link TARGET, @pipe, @second NAME, @writable, @foreign, @directory
}

// Line is a record that somebody has written into the journal: what caisson would put
// back when a setting leaves the overlay.
type Line struct {
	Item    string `yaml:"item"`
	Key     string `yaml:"key"`
	Prior   string `yaml:"prior"`
	Scope   string `yaml:"scope"`
	ScopeID string `yaml:"scopeId"` // that of the node when empty
}

// Journal returns the file of a row's lines, for a node whose scopes all have one id.
func (r StateDisk) Journal(t testing.TB, scopeID string) []byte {
	t.Helper()
	var out []byte
	for _, l := range r.Lines {
		if l.ScopeID == "" {
			l.ScopeID = scopeID
		}
		text, err := json.Marshal(map[string]any{"add": map[string]any{"item": l.Item, "key": l.Key, "prior": l.Prior, "scope": l.Scope, "scopeId": l.ScopeID}})
		if err != nil {
			t.Fatal(err)
		}
		out = fmt.Appendf(out, "%08x %s\n", crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)), text)
	}
	return out
}

// Sysfs writes what the kernel shows of the disks below sys.
func (r StateDisk) Sysfs(t testing.TB, sys string) {
	t.Helper()
	for _, p := range r.Disks {
		label := p.Label
		if label == "" {
			label = "caisson-state"
		}
		at := filepath.Join(sys, "devices", p.Path, p.Device)
		put(t, filepath.Join(at, "uevent"), "DEVNAME="+p.Device+"\nDEVTYPE=partition\nPARTN=1\nPARTNAME="+label+"\nPARTUUID="+p.UUID+"\n")
		for name, text := range p.Facts {
			put(t, filepath.Join(sys, "devices", name), text+"\n")
		}
		link := filepath.Join(sys, "class/block", p.Device)
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(at, link); err != nil {
			t.Fatal(err)
		}
	}
}

// Fill writes the content of a partition below dir.
func (p Partition) Fill(t testing.TB, dir string) {
	t.Helper()
	for name, text := range p.Files {
		at := filepath.Join(dir, name)
		what, arg, _ := strings.Cut(text, " ")
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		var err error
		switch what {
		case "@link":
			err = os.Symlink(arg, at)
		case "@pipe":
			err = syscall.Mkfifo(at, 0o600)
		case "@second":
			put(t, at, "{}")
			err = os.Link(at, filepath.Join(dir, arg))
		case "@writable":
			put(t, at, "{}")
			err = os.Chmod(at, 0o666)
		case "@foreign":
			put(t, at, "{}")
			err = os.Chown(at, 12345, 12345)
		case "@directory":
			err = os.Mkdir(at, 0o700)
		default:
			put(t, at, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func put(t testing.TB, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
