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

	"github.com/caisson-os/caisson/spec"
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
		l := &Lock{Key: v.(*lockFile).Key, rows: map[rowKey]Row{}}
		for _, row := range v.(*lockFile).Secrets {
			l.rows[rowKey{row.Node, row.Name}] = row
		}
		return l.write(filepath.Dir(name), before(t, name))
	}, func(name string) (any, error) {
		l, _, err := readLock(filepath.Dir(name))
		if err != nil {
			return nil, err
		}
		return &lockFile{spec.APIVersion, lockKind, l.Key, slices.Collect(maps.Values(l.rows))}, nil
	}))
}

// TestTwoRows: a merge may leave two rows of one secret, or of one node: which of them counts
// is not for the order of lines to say.
func TestTwoRows(t *testing.T) {
	dir := t.TempDir()
	for name, read := range map[string]func() error{
		lockName:       func() error { _, _, err := readLock(dir); return err },
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
