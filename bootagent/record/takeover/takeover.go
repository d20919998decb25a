// SPDX-License-Identifier: Apache-2.0

// Package takeover makes a host that Divingbell configured one of caisson's. It
// reads what Divingbell recorded below /var/divingbell before it changed a thing:
// those values, and not the ones of today, are the host's originals, and a script
// that ran there is one that ran. What Divingbell left to be set at every boot
// goes when the first run of caisson's own stands.
//
// It knows Divingbell's files and no kind of item: originals are described as the items
// that would make them. Packages, accounts and profiles stay as they are, for they
// need a layer. Only bootagent/node/effect and bootagent/program import it.
package takeover

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
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
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
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

// modules are Divingbell's: each is a pod that starts /tmp/MODULE.sh.
var modules = []string{"apparmor", "apt", "ethtool", "exec", "limits", "mounts", "perm", "sysctl", "uamlite"}

// ActiveError is returned while Divingbell's pods are on the host: what is taken
// over from them they would take back.
type ActiveError struct{ sign string }

func (e *ActiveError) Error() string {
	return "Divingbell still runs on this host: " + e.sign + "; two that set the same things undo each other"
}

// Hint says how it ends.
func (e *ActiveError) Hint() string {
	return "remove its release, for example with helm uninstall divingbell, then do this again; its records stay"
}

// Active returns an [ActiveError] while a pod of Divingbell is on the host: a
// process of one, or a volume that the kubelet keeps mounted for one whose process
// waits to be started again. proc is /proc.
func Active(proc string) error {
	table, err := os.ReadFile(filepath.Join(proc, "self/mountinfo"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 4 && ofPod(fields[4]) {
			return &ActiveError{fields[4] + " is mounted"}
		}
	}
	own, err := os.Readlink(filepath.Join(proc, "self/ns/mnt"))
	if err != nil {
		return nil // no process here is in a container
	}
	processes, _ := filepath.Glob(filepath.Join(proc, "[0-9]*")) // the pattern is valid
	for _, dir := range processes {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue // it ended
		}
		script := started(line)
		if script == "" {
			continue
		}
		if ns, err := os.Readlink(filepath.Join(dir, "ns/mnt")); err == nil && ns != own {
			return &ActiveError{fmt.Sprintf("process %s of a container runs %s", filepath.Base(dir), script)}
		}
	}
	return nil
}

// ofPod reports whether the kubelet mounted a volume there for one of Divingbell's.
func ofPod(target string) bool {
	return slices.ContainsFunc([]string{"secret", "configmap"}, func(kind string) bool {
		return strings.Contains(target, "/kubernetes.io~"+kind+"/divingbell-")
	})
}

// started returns the script of Divingbell's that a command line starts, "" for
// all others.
func started(cmdline []byte) string {
	args := bytes.Split(bytes.TrimRight(cmdline, "\x00"), []byte{0})
	for _, arg := range args[:min(2, len(args))] { // itself, or bash and it
		name, ok := strings.CutPrefix(string(arg), "/tmp/")
		if module, sh := strings.CutSuffix(name, ".sh"); ok && sh && slices.Contains(modules, module) {
			return string(arg)
		}
	}
	return ""
}

// Retire takes away what Divingbell left to be set at every boot: its files in
// sysctl.d and limits.d, its units for mounts and features. Copies lie beside the
// records, which get the name that is returned. A host that loses power in between
// does it again: the records go last.
func (f *Found) Retire() (kept string, err error) {
	for _, name := range f.Settings() {
		if err := f.remove(name); err != nil {
			return "", fmt.Errorf("take away what Divingbell left: %w", err)
		}
	}
	for n := 1; ; n++ {
		kept = Records + ".taken-over"
		if n > 1 {
			kept += fmt.Sprint("-", n)
		}
		if _, err := os.Lstat(f.path(kept)); errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return kept, durable.Rename(f.path(Records), f.path(kept))
}

// literal makes a name a pattern for itself alone: units have backslashes.
var literal = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)

// Settings are the files that Retire takes away.
func (f *Found) Settings() []string {
	var names []string
	for _, pattern := range []string{"/etc/sysctl.d/60-divingbell-*.conf", "/etc/security/limits.d/60-divingbell-*.conf"} {
		found, _ := filepath.Glob(f.path(pattern)) // the pattern is valid
		names = append(names, found...)
	}
	for _, kind := range []string{"mounts", "ethtool"} {
		units, err := os.ReadDir(f.path(Records, kind))
		if err != nil {
			continue // it had none
		}
		for _, unit := range units {
			wanted, _ := filepath.Glob(f.path("/etc/systemd/system/*.wants", literal.Replace(unit.Name()))) // the pattern is valid
			names = append(append(names, wanted...), f.path("/etc/systemd/system", unit.Name()))
		}
	}
	return names
}

// remove keeps a copy of a file and takes it away; a link goes without.
func (f *Found) remove(name string) error {
	info, err := os.Lstat(name)
	if err != nil {
		return fault.But(err, fs.ErrNotExist)
	}
	if info.Mode().IsRegular() {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		copied := f.path(Records, "settings", strings.TrimPrefix(name, f.root))
		if err := os.MkdirAll(filepath.Dir(copied), 0o755); err != nil {
			return err
		}
		if err := durable.WriteFile(copied, text, info.Mode().Perm()); err != nil {
			return err
		}
	}
	return durable.Remove(name)
}
