// SPDX-License-Identifier: Apache-2.0

package culprit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
)

// answersCap is more than any search writes down.
const answersCap = 4 << 20

// answers are those of one search, in a file.
type answers struct {
	known map[string]Answer
	file  string
}

// answers returns the answers of one search: of the same node, with the same contents of the same
// generations, the same checks and the same machine, which had as long. dir is the cache's.
func (n *Node) answers(dir string, good, bad int) (*answers, error) {
	question := []any{n.From.Ref().String(), n.Name, n.Checks, n.Within, n.Box.Memory, n.Box.Cards, n.Box.Disk}
	for _, e := range n.kept[good : bad+1] {
		question = append(question, e.Generation, e.Node.Overlay, e.Node.Layer)
	}
	data, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	return &answers{known: map[string]Answer{}, file: filepath.Join(dir, "bisect", digest.Hex(digest.Of(data))[:24]+".json")}, nil
}

// read reads what an earlier run was answered.
func (a *answers) read() error {
	data, err := ownfiles.ReadPublic(a.file, answersCap)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, &a.known)
	}
	if err != nil {
		return fmt.Errorf("read the answers of an earlier run (remove the file to begin again): %s: %w", a.file, err)
	}
	return nil
}

// lock makes the directory for what is built, which only one run of a search has: another would remove what this one
// builds. It goes with unlock.
func (n *Node) lock(dir string) (unlock func() error, err error) {
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil { // the cache may begin with it, which is the user's alone
			return nil, err
		}
		d, err := os.Open(dir)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = d.Close() // only opened
			return nil, cli.WithHint(fmt.Errorf("lock %s: %w", dir, err), "another run of the same search may have it")
		}
		locked, err := d.Stat()
		if err != nil {
			return nil, errors.Join(err, d.Close())
		}
		if there, err := os.Stat(dir); err != nil || !os.SameFile(there, locked) {
			_ = d.Close() // the run before had it, and has removed it
			continue
		}
		n.work = filepath.Join(dir, "run")
		if err := os.RemoveAll(n.work); err != nil { // a run that was killed may have left half of an agent
			return nil, errors.Join(err, d.Close())
		}
		return func() error { return errors.Join(os.RemoveAll(dir), d.Close()) }, nil
	}
}

// save writes the answers down.
func (a *answers) save() error {
	data, err := json.MarshalIndent(a.known, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(a.file), 0o700); err != nil {
		return err
	}
	return durable.WriteFile(a.file, append(data, '\n'), 0o644)
}

// forget removes the file: the search has ended, and another run asks again.
func (a *answers) forget() error {
	if err := os.Remove(a.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
