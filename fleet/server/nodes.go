// SPDX-License-Identifier: Apache-2.0

package server

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/view"
)

func (s *Server) getNodes(w http.ResponseWriter, req *http.Request) {
	q, err := s.fleet().Read(req.URL.Query(), query.MaxListed)
	if err != nil {
		s.answer(w, http.StatusBadRequest, problemOf(WrongQuery, err))
		return
	}
	l := s.fleet().List(q)
	writable(l.Nodes, s.o.Say)
	s.answer(w, http.StatusOK, l)
}

// maxOffered is how many labels the form offers: some are of one node each.
const maxOffered = 500

// perPage is how many nodes a page lists.
const perPage = 100

func (s *Server) nodesPage(req *http.Request) (int, any, error) {
	v := req.URL.Query()
	q, err := s.fleet().Read(v, perPage)
	q.Most = min(q.Most, perPage)
	data := map[string]any{"Query": q, "Kinds": view.Kinds, "Site": s.o.Site != nil, "Words": view.WordsOf(s.o.Hub.Nodes())}
	if s.o.Site != nil {
		labels := s.o.Site.Labels()
		data["Sets"], data["Labels"] = s.o.Site.Sets(), labels[:min(len(labels), maxOffered)]
	}
	link := func(name, value string) string {
		to := maps.Clone(v)
		to.Del("from")
		to.Set(name, value)
		return "/nodes?" + to.Encode()
	}
	if err != nil {
		data["Wrong"] = problemOf(WrongQuery, err)
		return http.StatusBadRequest, data, nil
	}
	l := s.fleet().List(q)
	data["List"], data["Last"], data["Columns"] = l, l.From+len(l.Nodes), columns(q.Sort, link)
	data["Label"] = func(label string) string { return withLabel(v, label) }
	if l.From > 0 {
		data["Before"] = link("from", strconv.Itoa(max(0, l.From-perPage)))
	}
	if l.From+len(l.Nodes) < l.All {
		data["After"] = link("from", strconv.Itoa(l.From+perPage))
	}
	return http.StatusOK, data, nil
}

// withLabel is the address of a list that a label narrows.
func withLabel(v url.Values, label string) string {
	to := maps.Clone(v)
	to.Del("from")
	if labels := slices.DeleteFunc(slices.Clone(to["label"]), func(l string) bool { return l == "" }); !slices.Contains(labels, label) {
		to["label"] = append(labels, label)
	}
	return "/nodes?" + to.Encode()
}

// column is the head of one, with the address of the list in its order.
type column struct {
	Title, Link, Class string
	Sorted             string // as aria-sort has it, "" where the list is sorted by another one
}

// columns are the heads of the list. That by which it is sorted leads to the same from its
// other end.
func columns(now view.Order, link func(name, value string) string) []column {
	list := []column{{Title: "Node", Link: "name"}, {Title: "Condition", Link: "condition"}, {Title: "Why"}, {Title: "Generation", Link: "generation", Class: "number"},
		{Title: "Layer", Link: "layer"}, {Title: "Reported", Link: "reported"}}
	for i := range list {
		c := &list[i]
		if c.Link == "" {
			continue
		}
		to := c.Link
		if by := now.By(); string(by) == c.Link {
			if c.Sorted = "descending"; !now.Falls() {
				c.Sorted, to = "ascending", "-"+to
			}
		}
		c.Link = link("sort", to)
	}
	return list
}
