// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// RecipientsName is the file of accepted recipients, beside the site.
const RecipientsName = "recipients.lock"

const (
	recipientsKind = "RecipientsLock"
	maxRecipients  = 16 << 20
)

// Recipients are those that operators have accepted, by node.
type Recipients struct {
	Nodes map[string]Accepted
	file  string
	was   []byte // the file, as it was read
}

// Accepted is whose key opens what is sealed to a node, and who has said so.
type Accepted struct {
	Node      string    `json:"node"`
	Recipient string    `json:"recipient"`
	Since     time.Time `json:"since"`
	By        string    `json:"by,omitempty"`
}

// recipientsFile is the document of recipients.lock.
type recipientsFile struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Recipients []Accepted `json:"recipients"`
}

// CheckRecipient refuses what is not a recipient of age's own kind. An error goes to logs, so it
// does not repeat a private key.
func CheckRecipient(text string) error {
	if strings.HasPrefix(strings.ToUpper(strings.TrimSpace(text)), "AGE-SECRET-KEY-") {
		return errors.New("this is the private half of a key, not a recipient: 'age-keygen -y' prints that; whoever saw the " +
			"private half can open what is sealed to it")
	}
	if _, err := age.ParseX25519Recipient(text); err != nil {
		return fmt.Errorf("%.80q is not a recipient: %w", text, err)
	}
	return nil
}

// ReadRecipients reads the file in the directory of a site; without it nobody is accepted.
func ReadRecipients(dir string) (*Recipients, error) {
	r := &Recipients{Nodes: map[string]Accepted{}, file: filepath.Join(dir, RecipientsName)}
	var file recipientsFile
	var err error
	if r.was, err = readRows(r.file, recipientsKind, maxRecipients, &file); err != nil {
		return nil, err
	}
	for _, one := range file.Recipients {
		if err := CheckRecipient(one.Recipient); err != nil {
			return nil, fmt.Errorf("read %s: node %.80q: %w", r.file, one.Node, err)
		}
		if _, twice := r.Nodes[one.Node]; twice {
			return nil, cli.WithHint(fmt.Errorf("read %s: node %.80q has two rows", r.file, one.Node),
				"keep that of the key which the node has: 'caisson-agent recipient' on it prints it")
		}
		r.Nodes[one.Node] = one
	}
	return r, nil
}

// Accept writes down the recipient of a node, see [Recipients.Put].
func (r *Recipients) Accept(one Accepted, replace bool) (had bool, err error) {
	if had, err = r.Put(one, replace); had || err != nil {
		return had, err
	}
	return false, r.Write()
}

// Put takes the recipient of a node, for [Recipients.Write], and reports whether the node has it
// already. One in place of another must be meant so.
func (r *Recipients) Put(one Accepted, replace bool) (had bool, err error) {
	was, known := r.Nodes[one.Node]
	switch {
	case known && was.Recipient == one.Recipient:
		return true, nil
	case known && !replace:
		return false, cli.WithHint(fmt.Errorf("node %s has the recipient %s since %s", one.Node, was.Recipient, was.Since.Format(time.DateOnly)),
			"--replace, where the machine, its state disk or its key is another one")
	}
	for other, has := range r.Nodes {
		if has.Recipient == one.Recipient {
			return false, cli.WithHint(fmt.Errorf("node %s has that recipient: two machines never have one", other),
				"'caisson secrets forget' ends it")
		}
	}
	r.Nodes[one.Node] = one
	return false, nil
}

// Forget writes that a node has no recipient, and takes out what is sealed to it.
func (r *Recipients) Forget(node string) error {
	delete(r.Nodes, node)
	if err := r.Write(); err != nil { // first: rows count only for the recipient that is accepted
		return err
	}
	return forget(filepath.Dir(r.file), node)
}

// Write replaces the file, unless somebody else has meanwhile.
func (r *Recipients) Write() error {
	rows := plain.Each(slices.Sorted(maps.Keys(r.Nodes)), func(node string) any { return r.Nodes[node] })
	return replace(r.file, r.was, encodeRows(recipientsKind, "", "recipients", rows))
}

// replace writes a file that is still as it was read.
func replace(name string, was, data []byte) error {
	if same, err := fileIs(name, was); err != nil || !same {
		return cmp.Or(err, cli.WithHint(fmt.Errorf("%s has changed meanwhile, and stays as it is", name), "run this again"))
	}
	return durable.WriteFile(name, data, 0o644)
}

// encodeRows writes a file of rows, one a line, so that version control merges them.
func encodeRows(kind, key, list string, rows []any) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `{"apiVersion":%q,"kind":%q,`, spec.APIVersion, kind)
	if key != "" {
		fmt.Fprintf(&b, `"key":%q,`, key)
	}
	fmt.Fprintf(&b, "%q:[\n", list)
	for i, row := range rows {
		data, _ := spec.Encode(row) // texts, and a time of now or as JSON had it
		b.Write(data)
		if i < len(rows)-1 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	b.WriteString("]}\n")
	return []byte(b.String())
}

// readRows reads such a file strictly, and returns its content; nil where it is not there.
func readRows(name, kind string, limit int64, into any) ([]byte, error) {
	data, err := ownfiles.ReadPublic(name, limit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = spec.DecodeFile(data, kind, into)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}

// fileIs reports whether a file still has a content, nil for none.
func fileIs(name string, was []byte) (bool, error) {
	now, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return was == nil, nil
	}
	return was != nil && string(now) == string(was), err
}

const (
	lockName = "secrets.lock"
	lockKind = "SecretsLock"
	maxLock  = 256 << 20
)

// Lock holds what was sealed: secrets.lock beside the site.
type Lock struct {
	Key  string // id of the key by which values are compared
	rows map[rowKey]Row
	was  []byte // the file as it was read, nil where there is none
}

type rowKey struct{ node, name string }

// Row is one secret as it was sealed to one node.
type Row struct {
	Node      string `json:"node"`
	Name      string `json:"name"`
	Recipient string `json:"recipient"`
	Source    string `json:"source,omitempty"` // digest of the encrypted file that the value was in
	MAC       string `json:"mac"`              // HMAC-SHA256 of name and value
	Sealed    string `json:"sealed"`           // as the overlay has it
	Bound     string `json:"bound,omitempty"`  // HMAC-SHA256 of the rest of the row; one without is sealed again
}

// lockFile is the document of secrets.lock.
type lockFile struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Key        string `json:"key,omitempty"`
	Secrets    []Row  `json:"secrets"`
}

func readLock(dir string) (*Lock, error) {
	var file lockFile
	data, err := readRows(filepath.Join(dir, lockName), lockKind, maxLock, &file)
	l := &Lock{Key: file.Key, rows: map[rowKey]Row{}, was: data}
	for _, row := range file.Secrets {
		at := rowKey{row.Node, row.Name}
		if _, twice := l.rows[at]; twice {
			return nil, cli.WithHint(fmt.Errorf("read %s: secret %.80q of node %.80q has two rows",
				filepath.Join(dir, lockName), row.Name, row.Node),
				"take both out, and publish: it is sealed again")
		}
		l.rows[at] = row
	}
	return l, err
}

// write replaces the file, unless somebody else has meanwhile.
func (l *Lock) write(dir string) error {
	byNode := func(a, b rowKey) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.name, b.name)) }
	at := slices.SortedFunc(maps.Keys(l.rows), byNode)
	if len(at) == 0 && l.was == nil {
		return nil
	}
	data := encodeRows(lockKind, l.Key, "secrets", plain.Each(at, func(k rowKey) any { return l.rows[k] }))
	if bytes.Equal(data, l.was) {
		return nil
	}
	return replace(filepath.Join(dir, lockName), l.was, data)
}

// forget takes the rows of a node out of the file.
func forget(dir, node string) error {
	l, err := readLock(dir)
	if err != nil {
		return err
	}
	maps.DeleteFunc(l.rows, func(at rowKey, _ Row) bool { return at.node == node })
	return l.write(dir)
}

// List says which secrets nodes need and have, as the verbs of secrets -o json print it.
type List struct {
	Nodes []Listed `json:"nodes"`
}

// Listed is one node of a [List].
type Listed struct {
	Node      string     `json:"node"`
	Recipient string     `json:"recipient,omitempty"` // none is accepted when absent
	Since     *time.Time `json:"since,omitempty"`
	By        string     `json:"by,omitempty"`
	Needs     []string   `json:"needs,omitempty"`  // secrets that its items need
	Sealed    []string   `json:"sealed,omitempty"` // of which these are sealed to it
}

// ListOf lists nodes, also such as have left the site.
func ListOf(s *site.Site, nodes []string) (out List, err error) {
	sealer, err := Open(s)
	if err != nil {
		return out, err
	}
	out.Nodes = []Listed{}
	for _, node := range nodes {
		one := Listed{Node: node, Sealed: sealer.Sealed(node)}
		if s.Fleet().Has(node) {
			if one.Needs, err = s.SecretsOf(node); err != nil {
				return out, err
			}
		}
		one.Sealed = slices.DeleteFunc(one.Sealed, func(name string) bool { return !slices.Contains(one.Needs, name) })
		if r, ok := sealer.Accepted()[node]; ok {
			one.Recipient, one.Since, one.By = r.Recipient, &r.Since, r.By
		}
		out.Nodes = append(out.Nodes, one)
	}
	return out, nil
}

// Write prints the list for people.
func (l List) Write(w io.Writer) {
	t := &plain.Columns{}
	for _, n := range l.Nodes {
		has := strings.Join(n.Needs, " ")
		if missing := len(n.Needs) - len(n.Sealed); missing > 0 {
			has += fmt.Sprintf(" (%s not sealed yet)", plain.Count(missing, "secret"))
		}
		t.Add(n.Node, cmp.Or(n.Recipient, "no recipient"), has)
	}
	t.Print(w, "")
}

// Accepted returns the accepted recipients by node.
func (r *Recipients) Accepted() map[string]string {
	accepted := map[string]string{}
	for node, one := range r.Nodes {
		accepted[node] = one.Recipient
	}
	return accepted
}
