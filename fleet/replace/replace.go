// SPDX-License-Identifier: Apache-2.0

// Package replace puts another machine in the place of a node's, in the files of a site: the row of
// the inventory, and the recipient of the node's secrets.
//
// All is looked at before anything is written, and what is written is read first as the site will be.
// It signs and publishes nothing; what the old machine has at the fleet's service is package query's.
// Only cmd/caisson imports it.
package replace

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/seal"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/inventory"
)

// Machine is the one that comes.
type Machine struct {
	Match    spec.Match    // its identifiers; none: the row stays, as for another disk in the same machine
	Accepted seal.Accepted // whose recipient is accepted; "" for none
	SameDisk bool          // the state disk moved along, and with it the keys
}

// What becomes of the recipient.
const (
	Kept      = "kept"
	Accepted  = "accepted"
	Forgotten = "forgotten"
	None      = "none" // there was none
)

// Change describes the files after a replacement.
type Change struct {
	Result

	opened     []string // secrets that the old machine could open
	secrets    bool     // the site has some
	recipients *seal.Recipients
	file       string
	text, to   []byte // of the file, as it was read and as it will be; nil where it stays
}

// Plan says what would change for a node of a site that was read from files by these names.
func Plan(files fs.FS, names []string, s *site.Site, node string, m Machine) (*Change, error) {
	nodes := s.Nodes()
	at := slices.IndexFunc(nodes, func(n inventory.Node) bool { return n.Name == node })
	if at < 0 {
		return nil, cli.Usage(inventory.DidYouMean(node, nodes), "the site has no node %q", node)
	}
	c := &Change{secrets: len(s.Secrets()) > 0}
	c.Result = Result{Node: node, Row: nodes[at].At().String(), Was: nodes[at].Match, Now: nodes[at].Match,
		Recipient: None, Still: []query.Still{}}
	if len(m.Match.MACs)+len(m.Match.UUIDs) > 0 && !same(m.Match, c.Was) {
		if err := c.rewrite(files, names, nodes, at, m.Match); err != nil {
			return nil, err
		}
	}
	sealer, err := seal.Open(s)
	if err != nil {
		return nil, err
	}
	c.opened = sealer.Sealed(node)
	if c.recipients, err = seal.ReadRecipients(s.Dir()); err != nil {
		return nil, err
	}
	err = c.receive(m)
	c.Changed = c.to != nil || c.Recipient == Accepted || c.Recipient == Forgotten
	return c, err
}

// receive decides about the recipient.
func (c *Change) receive(m Machine) error {
	if m.Accepted.Recipient == "" {
		_, has := c.recipients.Nodes[c.Node]
		switch {
		case has && c.to != nil && !m.SameDisk:
			c.Recipient = Forgotten
		case has:
			c.Recipient = Kept
		}
		return nil
	}
	if err := seal.CheckRecipient(m.Accepted.Recipient); err != nil {
		return cli.Usage("'caisson-agent status' on the new machine prints it", "%w", err)
	}
	had, err := c.recipients.Put(m.Accepted, true)
	if c.Recipient = Accepted; had {
		c.Recipient = Kept
	}
	return err
}

// rewrite makes the text of the file with the row, and reads it as the site will be read.
func (c *Change) rewrite(files fs.FS, names []string, nodes []inventory.Node, at int, to spec.Match) error {
	hint := "write it into the row yourself: match: " + inventory.MatchText(to)
	text, err := inventory.Rematch(nodes[at], to)
	if err != nil {
		return cli.Usage(hint, "%s: node %s: %w", c.Row, c.Node, err)
	}
	src := nodes[at].At().Src
	read, found := site.Parse(changed{files, src.Name, text}, names...)
	if err := found.Err(); err != nil {
		return cli.Usage(cli.FailureOf(err).Hint, "%s: node %s with another match: %w", c.Row, c.Node, err)
	}
	is := read.Nodes()
	for i := range nodes {
		want := nodes[i].Match
		if i == at {
			want = to
		}
		if len(is) != len(nodes) || is[i].Name != nodes[i].Name || !maps.Equal(is[i].Labels, nodes[i].Labels) || !same(is[i].Match, want) {
			return cli.Usage(hint, "%s: the row of node %s cannot be changed without another one", c.Row, c.Node)
		}
	}
	c.Now, c.file, c.text, c.to = to, src.Name, src.Data, text
	return nil
}

func same(a, b spec.Match) bool {
	return slices.Equal(a.MACs, b.MACs) && slices.Equal(a.UUIDs, b.UUIDs)
}

// Save writes the files: first the recipient, since nothing may be sealed to the old machine under
// the row of the new one. Cut between, the same call goes on.
func (c *Change) Save() error {
	var err error
	switch c.Recipient {
	case Accepted:
		err = c.recipients.Write()
	case Forgotten:
		err = c.recipients.Forget(c.Node)
	}
	if err != nil || c.to == nil {
		return err
	}
	name, err := filepath.EvalSymlinks(c.file)
	if err != nil {
		return fmt.Errorf("write %s: %w", c.file, err)
	}
	now, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if !bytes.Equal(now, c.text) {
		return cli.WithHint(fmt.Errorf("%s has changed meanwhile, and stays as it is", c.file), "run this again")
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	return durable.WriteFile(name, c.to, info.Mode().Perm())
}

// changed is a file system in which one file has another text.
type changed struct {
	fs.FS
	name string
	text []byte
}

func (c changed) Open(name string) (fs.File, error) {
	f, err := c.FS.Open(name)
	if err != nil || name != c.name {
		return f, err
	}
	return changedFile{f, bytes.NewReader(c.text)}, nil
}

type changedFile struct {
	fs.File
	text io.Reader
}

func (f changedFile) Read(p []byte) (int, error) { return f.text.Read(p) }
