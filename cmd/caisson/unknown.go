// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/unknown"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
)

// stranger is one machine of unknown -o json.
type stranger struct {
	unknown.Machine
	Node string `json:"node"` // a line for nodes: of the site
}

func (a *app) unknownCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "unknown oci:DIR",
		Short: "List machines that requested an overlay and have none",
		Long: "List machines that asked 'caisson serve' for an overlay of this layout and found none, those that\n" +
			"asked last first, each with a line for nodes: of the site. What a machine reports of itself is not\n" +
			"verified: compare it with the machine. One that finds an overlay leaves the list.",
		Example: "  caisson unknown oci:out",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			ref, err := oci.ParseRef(args[0])
			if err != nil || !ref.IsLayout() {
				return cli.Usage("'caisson serve' keeps the list beside the layout that it serves, as in oci:./out", "%q is not an OCI layout", args[0])
			}
			if _, err := (&access{}).existing(args[0]); err != nil {
				return err
			}
			machines, err := unknown.Read(unknown.Name(ref.Layout))
			if err != nil {
				return err
			}
			list := []stranger{}
			for _, m := range machines {
				list = append(list, stranger{m, m.Node()})
			}
			return a.show(list, func() {
				for _, s := range list {
					cli.Printf(a.out, "%s\t# from %s, last %s\n", s.Node, s.From, s.Last.UTC().Format(time.RFC3339))
				}
				a.say("%s", plain.Count(len(list), "unknown machine"))
			})
		},
	}
}

// requestLog returns what serve does with each request: it says it, and keeps who
// found no overlay.
func (a *app) requestLog(ref oci.Ref) (func(httpserver.Request), error) {
	list, err := unknown.Open(unknown.Name(ref.Layout), func(m unknown.Machine) {
		a.say("unknown machine at %s: %s ('caisson unknown %s' lists them)", m.From, m.Node(), ref)
	})
	if err != nil {
		return nil, cli.WithHint(err, "the list is a help only: remove the file")
	}
	var once sync.Once
	return func(r httpserver.Request) {
		a.say("%s", r)
		host, _, err := net.SplitHostPort(r.Remote)
		if err != nil {
			return // not an address of a network
		}
		switch r.Status {
		case http.StatusOK, http.StatusNotModified, http.StatusNotFound:
			if err := list.Answered(host, r.Agent, r.Path, r.Status != http.StatusNotFound, r.Time); err != nil {
				once.Do(func() { a.say("warning: %v", err) })
			}
		}
	}, nil
}
