// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/spec"
)

// Caps on what is read back.
const (
	maxFile = 64 << 20
	maxLine = 1 << 20
)

// line is one record of the file: exactly one of the two.
type line struct {
	Add  *item.Entry `json:"add,omitempty"`
	Drop *dropped    `json:"drop,omitempty"`
}

type dropped struct {
	Item string `json:"item"`
	Key  string `json:"key"`
}

func (l line) replay(entries map[id]item.Entry) {
	switch {
	case l.Add != nil:
		entries[id{l.Add.Item, l.Add.Key}] = *l.Add
	case l.Drop != nil:
		delete(entries, id{l.Drop.Item, l.Drop.Key})
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encode(lines []line) ([]byte, error) {
	var out bytes.Buffer
	for _, l := range lines {
		text, err := json.Marshal(l)
		if err != nil {
			return nil, fmt.Errorf("encode journal: %w", err)
		}
		if len(text) > maxLine-16 {
			return nil, fmt.Errorf("encode journal: an entry of %d bytes is over the limit of %d", len(text), maxLine-16)
		}
		fmt.Fprintf(&out, "%08x %s\n", crc32.Checksum(text, castagnoli), text)
	}
	return out.Bytes(), nil
}

var errLine = errors.New("damaged line")

func (r rules) decodeLine(text []byte) (line, error) {
	var l line
	sum, text, ok := bytes.Cut(text, []byte(" "))
	if !ok || len(sum) != 8 || len(text) > maxLine {
		return l, errLine
	}
	if fmt.Sprintf("%08x", crc32.Checksum(text, castagnoli)) != string(sum) {
		return l, errLine
	}
	// A key of a later release is left out: an original that is lost could not be taken back.
	if err := json.Unmarshal(text, &l); err != nil || (l.Add == nil) == (l.Drop == nil) {
		return l, errLine
	}
	if l.Add != nil && r.entry.Run(*l.Add) != nil {
		return l, errLine
	}
	return l, nil
}

// rules check an entry. A kind acts on what it finds in the journal,
// and the disk that it lies on may have been in other hands.
type rules struct {
	entry check.List[item.Entry] // what fails is damage: no agent wrote it
	alive check.List[living]     // what fails is of another boot, root or disk
}

var whole = rules{
	entry: check.List[item.Entry]{{Name: "key", OK: keyIsPlain}, {Name: "kind", OK: kindLasts}},
	alive: check.List[living]{{Name: "scope", OK: scopeIsPresent}},
}

// keyIsPlain refuses a key that no item uses: a kind makes a path of its key.
func keyIsPlain(e item.Entry) error {
	if e.Key == "" || strings.ContainsAny(e.Key, "\x00\n") || slices.Contains(strings.Split(e.Key, "/"), "..") {
		return fmt.Errorf("%.80q is not a key", e.Key)
	}
	return nil
}

// kindLasts refuses the disk's scope of what is gone with its root. The ids of a kernel and of a
// root are random, and unknown to who writes to the disk meanwhile; the disk's is not.
func kindLasts(e item.Entry) error {
	if e.Scope == item.Disk && !spec.OutlivesRoot(e.Item) {
		return fmt.Errorf("nothing that %s changes lasts as long as the disk", e.Item)
	}
	return nil
}

// living is an entry, and the scopes of now.
type living struct {
	item.Entry
	now item.Scopes
}

func scopeIsPresent(l living) error {
	if l.ScopeID == "" || l.ScopeID != l.now.ID(l.Scope) {
		return fmt.Errorf("its %q scope is gone", l.Scope)
	}
	return nil
}

// decode replays data. Damaged lines are returned; a last line without its end
// comes of a power cut, not damage.
func (r rules) decode(data []byte) (entries map[id]item.Entry, lines int, damaged [][]byte) {
	entries = map[id]item.Entry{}
	for len(data) > 0 {
		text, rest, whole := bytes.Cut(data, []byte("\n"))
		data = rest
		l, err := r.decodeLine(text)
		switch {
		case err == nil && whole:
			l.replay(entries)
		case whole:
			damaged = append(damaged, text)
		}
		lines++
	}
	return entries, lines, damaged
}

// load replays the file in dir and keeps what still counts. It also returns how
// many lines the file has, and whether it ends with a whole one.
func (j *Journal) load(dir string) (lines int, whole bool, err error) {
	j.entries = map[id]item.Entry{}
	before, err := ownfiles.ReadFile(filepath.Join(dir, Damaged), maxFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, false, err
	}
	j.set = bytes.Count(before, []byte("\n"))
	data, err := ownfiles.ReadFile(filepath.Join(dir, File), maxFile)
	if err != nil {
		return 0, false, fault.But(err, fs.ErrNotExist)
	}
	j.entries, lines, j.damaged = j.rules.decode(data)
	for k, e := range j.entries {
		if j.rules.alive.Run(living{e, j.scopes}) != nil {
			delete(j.entries, k)
		}
	}
	return lines, bytes.HasSuffix(data, []byte("\n")), nil
}

// compact leaves in dir a file that holds exactly what was understood and still
// counts, unless it is that already. Damage is set aside first.
func (j *Journal) compact(dir string, lines int, whole bool) error {
	if whole && lines == len(j.entries) {
		return nil
	}
	if len(j.damaged) > 0 {
		aside, err := ownfiles.ReadFile(filepath.Join(dir, Damaged), maxFile)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, text := range j.damaged {
			aside = append(append(aside, text...), '\n')
		}
		if err := durable.WriteFile(filepath.Join(dir, Damaged), aside[max(0, len(aside)-maxFile):], 0o600); err != nil {
			return err
		}
		j.set, j.damaged = j.set+len(j.damaged), nil
	}
	keep := make([]line, 0, len(j.entries))
	for _, e := range j.entries {
		keep = append(keep, line{Add: &e})
	}
	slices.SortFunc(keep, func(a, b line) int {
		return cmp.Or(strings.Compare(a.Add.Item, b.Add.Item), strings.Compare(a.Add.Key, b.Add.Key))
	})
	fresh, err := encode(keep)
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, File), fresh, 0o600)
}
