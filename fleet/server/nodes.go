// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/spec/site/service"
)

// Site is what a service asks of its site: labels and sets of
// nodes, and what services follow, are written there and published nowhere.
type Site interface {
	// Find returns the nodes that have all labels, each as KEY=VALUE, and belong to the
	// NodeSet where one is named.
	Find(labels []string, set string) ([]string, error)
	Labels() []string                          // each that some node has, as Find takes them
	Where(node string) (labels, sets []string) // as Find takes them
	Sets() []string
	Services() []service.Service
	ServicesLock() (*service.Lock, error) // as it is now
	Trouble() error                       // why it is not as its files are by now, nil where it is
}

// Inbox is where nodes put reports that they do not send.
type Inbox interface {
	Trouble() error // why not everything there could be read, nil where it was
}

// troubleWith says what is wrong with a source, "" where nothing is or there is none.
func troubleWith(source interface{ Trouble() error }) string {
	if source == nil {
		return ""
	}
	if err := source.Trouble(); err != nil {
		return err.Error()
	}
	return ""
}

// List is what GET /v1/nodes answers.
type List struct {
	Nodes []view.Line `json:"nodes"`
	All   int         `json:"all"` // that meet the query
	From  int         `json:"from"`
}

const (
	maxListed = 1000 // nodes on a page of a list
	maxLabels = 16   // that a query names: each is looked for at each node
)

// asked is a query as an address has it.
type asked struct {
	view.Query
	Labels []string // KEY=VALUE
	Set    string
}

var errNoSite = errors.New("labels and sets of nodes are in the site, and this service was started without one: --site names it")

// readQuery reads a query. An error is about the query.
func (s *Server) readQuery(v url.Values) (asked, error) {
	q := asked{Set: v.Get("set"), Query: view.Query{Text: v.Get("q"), Condition: view.Condition(v.Get("condition")), Layer: v.Get("layer"), Version: v.Get("version"),
		Sync: v.Get("sync"), Health: v.Get("health"), Service: v.Get("service"), Commit: v.Get("commit"), Differs: v.Get("differs") != ""}}
	for _, l := range v["label"] {
		if l != "" { // a field that nobody filled in
			q.Labels = append(q.Labels, l)
		}
	}
	switch {
	case len(q.Labels) == 0 && q.Set == "":
		return q, nil
	case s.o.Site == nil:
		return q, errNoSite
	case len(q.Labels) > maxLabels:
		return q, fmt.Errorf("more than %d labels", maxLabels)
	}
	names, err := s.o.Site.Find(q.Labels, q.Set)
	q.Named(names)
	return q, err
}

func (s *Server) list(v url.Values, q asked, usual int) List {
	number := func(name string, otherwise, most int) int {
		n, err := strconv.Atoi(v.Get(name))
		if err != nil || n < 0 {
			return otherwise
		}
		return min(n, most)
	}
	l := List{From: number("from", 0, 1<<30)}
	l.Nodes, l.All = view.Select(s.o.Hub.Nodes(), q.Query, l.From, number("most", usual, maxListed), s.o.Hub.Now())
	if l.Nodes == nil {
		l.Nodes = []view.Line{}
	}
	return l
}

// Nodes returns all nodes that meet a query, which is as GET /v1/nodes has it.
func (s *Server) Nodes(v url.Values) ([]view.Line, error) {
	q, err := s.readQuery(v)
	if err != nil {
		return nil, err
	}
	nodes := s.o.Hub.Nodes()
	list, _ := view.Select(nodes, q.Query, 0, len(nodes), s.o.Hub.Now())
	return list, nil
}

func (s *Server) getNodes(w http.ResponseWriter, req *http.Request) {
	v := req.URL.Query()
	q, err := s.readQuery(v)
	if err != nil {
		s.fail(w, http.StatusBadRequest, "query", "%v", err)
		return
	}
	l := s.list(v, q, maxListed)
	writable(l.Nodes, s.o.Say)
	s.answer(w, http.StatusOK, l)
}

// maxOffered is how many labels the form offers: some are of one node each.
const maxOffered = 500

// perPage is how many nodes a page lists.
const perPage = 100

func (s *Server) nodesPage(w http.ResponseWriter, req *http.Request) {
	v := req.URL.Query()
	q, wrong := s.readQuery(v)
	l, status := List{}, http.StatusBadRequest
	if wrong == nil {
		l, status = s.list(v, q, perPage), http.StatusOK
	}
	link := func(from int) string {
		to := maps.Clone(v)
		to.Set("from", strconv.Itoa(from))
		return "/nodes?" + to.Encode()
	}
	data := map[string]any{"List": l, "Query": q, "Kinds": view.Kinds, "Last": l.From + len(l.Nodes), "Wrong": wrong, "Site": s.o.Site != nil, "Words": view.WordsOf(s.o.Hub.Nodes())}
	if s.o.Site != nil {
		labels := s.o.Site.Labels()
		data["Sets"], data["Labels"] = s.o.Site.Sets(), labels[:min(len(labels), maxOffered)]
	}
	if l.From > 0 {
		data["Before"] = link(max(0, l.From-perPage))
	}
	if l.From+len(l.Nodes) < l.All {
		data["After"] = link(l.From + perPage)
	}
	s.show(w, req, status, "nodes.html", data)
}
