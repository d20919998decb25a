// SPDX-License-Identifier: Apache-2.0

// Package takeover makes a host that Divingbell configured one of caisson's. It
// reads what Divingbell recorded below /var/divingbell before it changed a thing:
// those values, and not the ones of today, are the host's originals, and a script
// that ran there is one that ran. What Divingbell left to be set at every boot
// goes when the first run of caisson's own stands.
//
// It knows Divingbell's files and no kind of item: originals are told as the items
// that would make them. Packages, accounts and profiles stay as they are, for they
// need a layer. Only bootagent/node/effect and bootagent/program/enroll import it.
package takeover

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/spec"
)

// Records is the directory that Divingbell keeps its records in.
const Records = "/var/divingbell"

// maxRecord caps one of Divingbell's files; a kernel parameter has the longest.
const maxRecord = 64 << 10

// Found holds the files that Divingbell left on a host.
type Found struct {
	// Originals are the values before Divingbell changed them, as items: what a
	// parameter or a feature was, whose a path was. A mount is one that Divingbell
	// made, so that originally there was none.
	Originals spec.Items
	Doubts    []string // records that cannot be relied upon, and why
	Left      []string // what stays as it is because it needs a layer

	root   string
	runs   map[string]run    // of scripts, by Divingbell's hash
	hashes map[string]string // of scripts that were searched for
}

// Look reads what Divingbell left below root, nil when there are no records.
func Look(root string) (*Found, error) {
	f := &Found{root: root, runs: map[string]run{}, hashes: map[string]string{}}
	if info, err := os.Lstat(f.path(Records)); errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	for _, kind := range []struct {
		dir  string
		read func(name, text string) error
	}{
		{"sysctl", f.sysctl}, {"ethtool", f.ethtool}, {"mounts", f.mount}, {"perm", f.perm},
	} {
		if err := f.each(kind.dir, kind.read); err != nil {
			return nil, fmt.Errorf("read what Divingbell recorded: %w", err)
		}
	}
	if err := f.history(); err != nil {
		return nil, fmt.Errorf("read what Divingbell recorded: %w", err)
	}
	for _, other := range []struct{ file, what string }{{"apt/packages", "packages that it installed"}, {"apparmor", "AppArmor profiles"}} {
		if _, err := os.Lstat(f.path(Records, other.file)); err == nil {
			f.Left = append(f.Left, other.what)
		}
	}
	if own, _ := filepath.Glob(f.path("/etc/sudoers.d/divingbell-*")); len(own) > 0 { // the pattern is valid
		f.Left = append(f.Left, "accounts, keys and sudo rules")
	}
	return f, nil
}

func (f *Found) path(parts ...string) string {
	return filepath.Join(append([]string{f.root}, parts...)...)
}

// each hands the files of one kind to read. A record that cannot be understood is
// a doubt: the others still count.
func (f *Found) each(kind string, read func(name, text string) error) error {
	list, err := os.ReadDir(f.path(Records, kind))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range list {
		if e.IsDir() {
			continue // perm keeps a history there, which says nothing: it is set whenever it differs
		}
		text, err := f.record(kind, e.Name())
		if err == nil {
			err = read(e.Name(), text)
		}
		if err != nil {
			f.Doubts = append(f.Doubts, fmt.Sprintf("%s: %v", filepath.Join(Records, kind, e.Name()), err))
		}
	}
	return nil
}

func (f *Found) record(parts ...string) (string, error) {
	data, err := ownfiles.ReadFile(f.path(append([]string{Records}, parts...)...), maxRecord)
	return strings.TrimRight(string(data), "\n"), err
}

// Summary says in one line what there is.
func (f *Found) Summary() string {
	permissions := 0
	if f.Originals.Perm != nil {
		permissions = len(f.Originals.Perm.Paths)
	}
	return fmt.Sprintf("the originals of %d kernel parameters, %d features and %d paths, %d mounts, the history of %d scripts",
		len(f.Originals.Sysctl), len(f.Originals.Ethtool), permissions, len(f.Originals.Mounts), len(f.runs))
}
