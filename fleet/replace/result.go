// SPDX-License-Identifier: Apache-2.0

package replace

import (
	"io"
	"strings"

	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/inventory"
)

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
