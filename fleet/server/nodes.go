// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/nearest"
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
	Note  string      `json:"note,omitempty"` // which word of the query no node at all meets
}

const (
	maxListed = 1000 // nodes on a page of a list
	maxLabels = 16   // that a query names: each is looked for at each node
)

// asked is a query as an address has it.
type asked struct {
	view.Query
	Labels     []string // KEY=VALUE
	Set        string
	from, most int
}

var errNoSite = errors.New("labels and sets of nodes are in the site, and this service was started without one: --site names it")

// nodeQuery is what GET /v1/nodes reads of its address.
var nodeQuery = []string{"q", "condition", "layer", "version", "sync", "health", "service", "commit", "differs", "label", "set", "sort", "from", "most"}

// readQuery reads a query. An error is about the query: a word that nothing can meet is
// one, for the empty list that would come of it says that all is well.
func (s *Server) readQuery(v url.Values, usual int) (asked, error) {
	q := asked{Set: v.Get("set"), Query: view.Query{Text: v.Get("q"), Condition: view.Condition(v.Get("condition")), Layer: v.Get("layer"), Version: v.Get("version"),
		Sync: v.Get("sync"), Health: v.Get("health"), Service: v.Get("service"), Commit: v.Get("commit"), Sort: view.Order(v.Get("sort"))}}
	for _, l := range v["label"] {
		if l != "" { // a field that nobody filled in
			q.Labels = append(q.Labels, l)
		}
	}
	for name := range v {
		if !slices.Contains(nodeQuery, name) {
			return q, cli.WithHint(fmt.Errorf("unknown parameter %.60q", name), cmp.Or(likeParameter(name), "one of: "+strings.Join(nodeQuery, ", ")))
		}
	}
	var err error
	if text := v.Get("differs"); text != "" {
		if q.Differs, err = strconv.ParseBool(text); err != nil {
			return q, fmt.Errorf("differs is 1 or 0, not %.60q", text)
		}
	}
	if q.from, err = number("from", v.Get("from"), 0, 1<<30); err != nil {
		return q, err
	}
	if q.most, err = number("most", v.Get("most"), usual, maxListed); err != nil {
		return q, err
	}
	if err := q.Check(s.o.Hub.Nodes()); err != nil {
		return q, err
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

func likeParameter(name string) string {
	if like := nearest.Word(name, slices.Values(nodeQuery)); like != "" {
		return "did you mean " + like + "?"
	}
	return ""
}

func number(name, text string, usual, most int) (int, error) {
	if text == "" {
		return usual, nil
	}
	n, err := strconv.ParseUint(text, 10, 62)
	if err != nil {
		return 0, fmt.Errorf("%s is a number, not %.60q", name, text)
	}
	return int(min(n, uint64(most))), nil
}

func (s *Server) list(q asked) List {
	nodes := s.o.Hub.Nodes()
	l := List{From: q.from}
	if l.Nodes, l.All = view.Select(nodes, q.Query, q.from, q.most, s.o.Hub.Now()); l.All == 0 {
		l.Nodes, l.Note = []view.Line{}, q.Nobody(nodes)
	}
	s.label(l.Nodes)
	return l
}

// label adds what the site says of nodes.
func (s *Server) label(list []view.Line) {
	if s.o.Site == nil {
		return
	}
	for i := range list {
		list[i].Labels, _ = s.o.Site.Where(list[i].Name)
	}
}

// Nodes returns all nodes that meet a query, which is as GET /v1/nodes has it.
func (s *Server) Nodes(v url.Values) (List, error) {
	q, err := s.readQuery(v, maxListed)
	if err != nil {
		return List{}, err
	}
	q.from, q.most = 0, len(s.o.Hub.Nodes())
	return s.list(q), nil
}

func (s *Server) getNodes(w http.ResponseWriter, req *http.Request) {
	q, err := s.readQuery(req.URL.Query(), maxListed)
	if err != nil {
		s.answer(w, http.StatusBadRequest, problemOf(WrongQuery, err))
		return
	}
	l := s.list(q)
	writable(l.Nodes, s.o.Say)
	s.answer(w, http.StatusOK, l)
}

// maxOffered is how many labels the form offers: some are of one node each.
const maxOffered = 500

// perPage is how many nodes a page lists.
const perPage = 100

func (s *Server) nodesPage(req *http.Request) (int, any, error) {
	v := req.URL.Query()
	q, err := s.readQuery(v, perPage)
	q.most = min(q.most, perPage)
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
	l := s.list(q)
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
