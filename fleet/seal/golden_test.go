// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/test/golden"
)

const page = "../../docs/formats/site-files.md"

// before is what a file holds that is written again, nil where there is none.
func before(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return data
}

// TestLockGolden: secrets.lock of 0.10.0 is read, and written byte-equal.
func TestLockGolden(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/" + lockName, Page: page, New: new(lockFile), Refused: true,
		Sample: golden.Head(spec.APIVersion, lockKind),
		Types:  []reflect.Type{reflect.TypeFor[lockFile](), reflect.TypeFor[Row]()},
	}.InFile(t, func(name string, v any) error {
		l := &Lock{Key: v.(*lockFile).Key, rows: map[rowKey]Row{}, was: before(t, name)}
		for _, row := range v.(*lockFile).Secrets {
			l.rows[rowKey{row.Node, row.Name}] = row
		}
		return l.write(filepath.Dir(name))
	}, func(name string) (any, error) {
		l, err := readLock(filepath.Dir(name))
		if err != nil {
			return nil, err
		}
		return &lockFile{spec.APIVersion, lockKind, l.Key, slices.Collect(maps.Values(l.rows))}, nil
	}))
}

// TestRowsOfBefore: a lock from before rows were bound is read, and nothing in it counts as sealed:
// its rows are sealed again, once.
func TestRowsOfBefore(t *testing.T) {
	p := newPlace(t)
	x, s := p.open()
	p.must(x.Seal(t.Context(), []string{"a", "b"}))
	p.must(x.Write())
	now, _ := p.value(s, "a")
	for at, row := range x.lock.rows {
		row.Bound = ""
		x.lock.rows[at] = row
	}
	x.lock.was = before(t, filepath.Join(p.dir, lockName))
	p.must(x.lock.write(p.dir))

	x, s = p.open()
	if sealed, _ := p.value(s, "a"); sealed != now {
		t.Error("a rollout that is under way loses what it was signed with")
	}
	identities := x.Identities
	x.Identities = nil
	var mend interface{ Hint() string }
	if err := x.Seal(t.Context(), []string{"a", "b"}); !errors.As(err, &mend) || !strings.Contains(err.Error(), "for 2 nodes secrets.lock has it as before rows were bound") {
		t.Errorf("%v", err)
	}
	x.Must, x.Expect = false, true
	p.must(x.Seal(t.Context(), []string{"a", "b"}))
	if sealed, _ := p.value(s, "a"); sealed != "" || len(x.NotLooked()) != 1 {
		t.Errorf("a plan shows what is not published: %q, not looked at %q", sealed, x.NotLooked())
	}
	x.Must, x.Identities = true, identities
	p.must(x.Seal(t.Context(), []string{"a", "b"}))
	p.must(x.Write())
	again, value := p.value(s, "a")
	if again == now || value != "first" {
		t.Errorf("it is sealed as %q, of %q", again, value)
	}
	x, s = p.open()
	p.must(x.Seal(t.Context(), []string{"a", "b"}))
	if sealed, _ := p.value(s, "a"); sealed != again {
		t.Error("it is sealed a third time")
	}
}

// TestForgedRows: who writes the lock, and has neither the publisher's key nor what opens the
// secrets, puts nothing of his own into it.
func TestForgedRows(t *testing.T) {
	p := newPlace(t)
	x, _ := p.open()
	p.must(x.Seal(t.Context(), []string{"a", "b"}))
	p.must(x.Write())
	good := before(t, filepath.Join(p.dir, lockName))
	his, err := encrypt(p.node["a"].Recipient().String(), []byte("his own"))
	p.must(err)
	at, other := rowKey{"a", "db"}, rowKey{"b", "db"}
	forgeries := map[string]func(l *Lock, r *Row){
		"his own ciphertext":            func(_ *Lock, r *Row) { r.Sealed = his },
		"the ciphertext of another row": func(l *Lock, r *Row) { r.Sealed, r.Bound = l.rows[other].Sealed, l.rows[other].Bound },
		"another source":                func(_ *Lock, r *Row) { r.Sealed, r.Source = his, "sha256:"+strings.Repeat("0", 64) },
		"another value's HMAC":          func(_ *Lock, r *Row) { r.Sealed, r.MAC = his, strings.Repeat("0", 64) },
		"no HMAC, as of before":         func(_ *Lock, r *Row) { r.Sealed, r.Bound = his, "" },
		"no name of the key":            func(l *Lock, r *Row) { r.Sealed, l.Key = his, "" },
		"the name of another key":       func(l *Lock, r *Row) { r.Sealed, l.Key = his, "0123456789abcdef" },
	}
	for name, forge := range forgeries {
		t.Run(name, func(t *testing.T) {
			p.T = t
			for _, key := range []bool{true, false} {
				l, err := readLock(p.dir)
				p.must(err)
				row := l.rows[at]
				forge(l, &row)
				l.rows[at] = row
				p.must(l.write(p.dir))
				aside := filepath.Join(p.dir, "keys", keyName)
				if !key { // published from elsewhere, without it
					p.must(os.Rename(aside, aside+".aside"))
				}
				s, _ := site.Parse(os.DirFS("/"), strings.TrimPrefix(filepath.Join(p.dir, "site.yaml"), "/"))
				t.Chdir("/")
				x, err := Open(s)
				if err == nil {
					x.Must, x.Identities = true, &Identities{list: []age.Identity{p.key}}
					err = x.Seal(t.Context(), []string{"a", "b"})
				}
				if err == nil {
					if _, value := p.value(s, "a"); value != "first" {
						t.Errorf("with the key %v: %q is published", key, value)
					}
				}
				if mend := (interface{ Hint() string })(nil); err != nil && !errors.As(err, &mend) {
					t.Errorf("it has no hint: %v", err)
				}
				if !key {
					p.must(os.Rename(aside+".aside", aside))
					if err == nil {
						t.Error("rows are taken that nobody checked")
					}
				}
				p.must(os.WriteFile(filepath.Join(p.dir, lockName), good, 0o600))
			}
		})
	}
}

// TestTwoRows: a merge may leave two rows of one secret, or of one node: which of them counts
// is not for the order of lines to say.
func TestTwoRows(t *testing.T) {
	dir := t.TempDir()
	for name, read := range map[string]func() error{
		lockName:       func() error { _, err := readLock(dir); return err },
		RecipientsName: func() error { _, err := ReadRecipients(dir); return err },
	} {
		data, err := os.ReadFile(filepath.Join("testdata/golden", name))
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Split(data, []byte("\n"))
		twice := bytes.Join(slices.Insert(lines, 1, append(slices.Clone(lines[1]), ',')), []byte("\n"))
		if err := os.WriteFile(filepath.Join(dir, name), twice, 0o600); err != nil {
			t.Fatal(err)
		}
		var mend interface{ Hint() string }
		if err := read(); !errors.As(err, &mend) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "has two rows") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRecipientsGolden: so is recipients.lock.
func TestRecipientsGolden(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/" + RecipientsName, Page: page, New: new(recipientsFile), Refused: true,
		Sample: func(v any) {
			golden.Head(spec.APIVersion, recipientsKind)(v)
			v.(*recipientsFile).Recipients[0].Recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
		},
		Types: []reflect.Type{reflect.TypeFor[recipientsFile](), reflect.TypeFor[Accepted]()},
	}.InFile(t, func(name string, v any) error {
		r := &Recipients{Nodes: map[string]Accepted{}, file: name, was: before(t, name)}
		for _, one := range v.(*recipientsFile).Recipients {
			r.Nodes[one.Node] = one
		}
		return r.Write()
	}, func(name string) (any, error) {
		r, err := ReadRecipients(filepath.Dir(name))
		if err != nil {
			return nil, err
		}
		return &recipientsFile{spec.APIVersion, recipientsKind, slices.Collect(maps.Values(r.Nodes))}, nil
	}))
}
