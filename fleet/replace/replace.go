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
	"strings"

	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/seal"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/plain"
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

// MatchOf returns identifiers as operators write them.
func MatchOf(macs, uuids []string) (m spec.Match, err error) {
	for _, text := range macs {
		mac, err := inventory.ParseMAC(text)
		if err != nil {
			return m, cli.Usage("as in 52:54:00:12:34:56", "%w", err)
		}
		m.MACs = append(m.MACs, mac)
	}
	for _, text := range uuids {
		m.UUIDs = append(m.UUIDs, strings.ToLower(text)) // the site is read with it
	}
	return m, nil
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
		return cli.Usage(cli.HintOf(err), "%s: node %s with another match: %w", c.Row, c.Node, err)
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

// Result tells what becomes of a node's machine, and what is left to do.
type Result struct {
	Node      string        `json:"node"`
	DryRun    bool          `json:"dryRun"` // nothing was done
	Row       string        `json:"row"`    // FILE:LINE:COLUMN
	Was       spec.Match    `json:"was"`
	Now       spec.Match    `json:"now"`
	Recipient string        `json:"recipient"`           // kept, accepted, forgotten or none
	ReportKey string        `json:"reportKey,omitempty"` // that counts
	Asked     bool          `json:"asked"`               // the service was asked what the old machine has
	Changed   bool          `json:"changed"`             // something was, or with dryRun would be
	Still     []query.Still `json:"still"`               // what the old machine has
	Next      []string      `json:"next"`                // commands
}

// Follow adds what the old machine has that a site knows of, and the commands that come next.
func (c *Change) Follow(files []string, m Machine) {
	add := func(what, says, command string) {
		c.Still = append(c.Still, query.Still{What: what, Says: says, Command: command})
	}
	if len(c.opened) > 0 && c.Recipient != Kept {
		add("secrets", "it could open "+
			strings.Join(c.opened, ", ")+", and its disk opens what was published: change the values where they come from", "")
	}
	if c.Recipient != Kept {
		add("known host", "its SSH host key, for those who logged in", "ssh-keygen -R "+c.Node)
	}
	add("credentials", "those that it was installed with, for the registry and for reports: change them where they come from", "")
	var site, more string
	for _, name := range files {
		site += " " + cli.ShellWord(name)
	}
	c.Next = []string{"caisson publish" + site} // also where this was done before: it may not be published
	if c.secrets && m.Accepted.Recipient == "" {
		more += " --recipient RECIPIENT"
	}
	if c.ReportKey == "" {
		more += " --report-key KEY"
	}
	if more != "" && !m.SameDisk {
		c.Next = append(c.Next, "caisson fleet replace"+site+" "+c.Node+more)
	}
}

// Write prints the result for people.
func (r Result) Write(w io.Writer) {
	is := "is now"
	if r.DryRun {
		is = "would be"
	}
	t := &plain.Columns{}
	was, now := inventory.MatchText(r.Was), inventory.MatchText(r.Now)
	t.Add(r.Row, was)
	if now != was {
		t.Add(is, now)
	}
	t.Add("recipient", r.Recipient)
	if r.ReportKey != "" {
		t.Add("report key", r.ReportKey)
	}
	cli.Printf(w, "%s\n", r.Node)
	t.Print(w, "  ")
	cli.Printf(w, "the old machine still has\n")
	for _, s := range r.Still {
		cli.Printf(w, "  %s: %s\n", s.What, s.Says)
		if s.Command != "" {
			cli.Printf(w, "    %s\n", s.Command)
		}
	}
	if len(r.Next) > 0 {
		cli.Printf(w, "next, with RECIPIENT and KEY as the new machine prints them\n")
	}
	for _, command := range r.Next {
		cli.Printf(w, "  %s\n", command)
	}
}
