// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"strings"

	"github.com/caisson-os/caisson/fleet/unknown"
)

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
	var rows []string
	named := map[string]bool{}
	var machines []unknown.Machine
	for _, m := range list {
		row := m.Node()
		if name, _, _ := strings.Cut(row, ","); !named[name] { // a machine may ask from two addresses
			named[name] = true
			rows, machines = append(rows, row), append(machines, m)
		}
	}
	data["Machines"], data["All"] = machines, strings.Join(rows, "\n")
	return http.StatusOK, data, nil
}
