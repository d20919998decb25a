// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site"
)

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
		recipient, has := n.Recipient, strings.Join(n.Needs, " ")
		if recipient == "" {
			recipient = "no recipient"
		}
		if missing := len(n.Needs) - len(n.Sealed); missing > 0 {
			has += fmt.Sprintf(" (%s not sealed yet)", plain.Count(missing, "secret"))
		}
		t.Add(n.Node, recipient, has)
	}
	t.Print(w, "")
}
