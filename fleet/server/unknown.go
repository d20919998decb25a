// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/unknown"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
)

// Unknown holds what GET /v1/unknown answers.
type Unknown struct {
	Known    bool              `json:"known"` // this service knows who asked in vain
	Machines []unknown.Machine `json:"machines"`
	Trouble  string            `json:"trouble,omitempty"` // why the list cannot be read
}

// Find returns the machine with an identifier.
func (u Unknown) Find(id string) (m unknown.Machine, err error) {
	switch {
	case !u.Known:
		return m, cli.Usage("give --mac and --uuid", "the service does not know who asked in vain")
	case u.Trouble != "":
		return m, fmt.Errorf("the service cannot read who asked in vain: %s", plain.Line(u.Trouble))
	}
	return unknown.Find(unknown.Clean(u.Machines), id)
}

// strangers returns the machines that asked in vain, those that asked last first.
func (s *Server) strangers() Unknown {
	u := Unknown{Known: s.o.Unknown != nil, Machines: []unknown.Machine{}}
	if !u.Known {
		return u
	}
	list, err := s.o.Unknown()
	if err != nil {
		u.Trouble = problemOf("unknown", err).Value
	}
	u.Machines = append(u.Machines, list...)
	return u
}

// mostFit is how many machines the page of a replacement offers.
const mostFit = 20

// fitting is a machine that may come in a node's place, with the command that has it come.
type fitting struct {
	unknown.Machine
	Command string
}

// replacePage shows what may come in the place of a node's machine, and what that has still.
func (s *Server) replacePage(req *http.Request) (int, any, error) {
	n, err := s.fleet().Node(req.Context(), req.PathValue("node"))
	if err != nil {
		return 0, nil, err
	}
	verb := "caisson fleet replace " + cmp.Or(s.names().Site, "site.yaml") + " " + n.Name
	u := s.strangers()
	var fit []fitting
	for _, m := range unknown.For(u.Machines, n.Name) {
		if len(fit) < mostFit {
			fit = append(fit, fitting{m, verb + " --machine " + m.ID() + s.asReader(req)})
		}
	}
	still := n.Still(s.o.Hub.Rollouts(), query.Commands{Looks: s.looks, Publishes: s.publishes, Service: s.asOperator(req)})
	return http.StatusOK, map[string]any{"Node": n, "Unknown": u, "Fit": fit, "Still": still, "Look": verb +
		" --dry-run" + s.asReader(req)}, nil
}

// unknownPage lists machines that asked for an overlay and have none, each with a row for the
// inventory. What they say of themselves is not proven.
func (s *Server) unknownPage(*http.Request) (int, any, error) {
	data := map[string]any{"On": s.o.Unknown != nil}
	if s.o.Unknown == nil {
		return http.StatusOK, data, nil
	}
	list, err := s.o.Unknown()
	if err != nil {
		data["Wrong"] = problemOf("unknown", err)
		return http.StatusOK, data, nil
	}
	rows := unknown.Rows(list)
	all := plain.Each(rows, func(r unknown.Row) string { return r.Node })
	data["Machines"], data["All"] = rows, strings.Join(all, "\n")
	return http.StatusOK, data, nil
}
