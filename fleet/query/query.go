// SPDX-License-Identifier: Apache-2.0

// Package query answers what is asked of a fleet: how it is at a glance, which nodes meet
// a query, one node in full, and where its services stand.
//
// What is known of nodes is package hub's; labels, sets and services are the site's, and
// what overlays bring and git has comes through small interfaces. The answers are the
// documents of the service's API: fleet/server sends them, and cmd/caisson prints them,
// whether it asked a service, by a [Client], or has read the reports itself.
package query

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/service"
)

// Fleet is a fleet of which something is asked.
type Fleet struct {
	Hub   *hub.Hub
	Site  Site  // nil: nodes are not found by label or set
	Inbox Inbox // nil: nobody reads reports in a registry
	Sent  Sent  // nil: nobody reads overlays
	Heads Heads // nil: git is not asked
}

// Site holds what a site adds to its fleet: labels and sets of nodes, and what services
// follow, are written there and published nowhere.
type Site interface {
	Now() *site.Site
	Having(settings []string) ([]string, error) // each as 'caisson explain --where' has it
	ServicesLock() (*service.Lock, error)       // as it is now
	Trouble() error                             // why it is not as its files are by now, nil where it is
}

// Inbox is where nodes put reports that they do not send.
type Inbox interface {
	Trouble() error // why not everything there could be read, nil where it was
}

// Sent says which commits of services and which windows overlays bring, as far as they were read.
type Sent interface {
	Windows(overlay string) (m *spec.Maintenance, read bool) // nil: none
	Services(overlay string) (commits map[string]string, read bool)
	Left() (overlays int, trouble error) // that were not read yet, and what was in the way
}

// Head holds what git said of a service.
type Head struct {
	Commit  string    // "" before the first answer
	At      time.Time // of that answer
	Trouble error     // why there was none since
}

// Heads says what git has for services, as far as it was asked.
type Heads interface {
	Head(s *service.Service) (Head, bool)
}

// TroubleWith says what is wrong with a source, "" where nothing is or there is none.
func TroubleWith(source interface{ Trouble() error }) string {
	if source != nil {
		if err := source.Trouble(); err != nil {
			return err.Error()
		}
	}
	return ""
}

// Summary holds what GET /v1/summary answers.
type Summary struct {
	hub.Fleet
	view.Summary
	Rollouts     []rollout.Brief `json:"rollouts"`               // that have not ended, or did within a day; the newest first
	SiteTrouble  string          `json:"siteTrouble,omitempty"`  // why labels, sets and services are of an older site
	InboxTrouble string          `json:"inboxTrouble,omitempty"` // why reports in the registry of reports could not be read
	Time         time.Time       `json:"time"`
}

// Summary returns the fleet at a glance.
func (f *Fleet) Summary() Summary {
	now := f.Hub.Now()
	return Summary{f.Hub.Fleet(), view.Summarise(f.Hub.Nodes()), f.lately(now), TroubleWith(f.Site),
		TroubleWith(f.Inbox), now.UTC().Truncate(time.Second)}
}

// lately returns the rollouts that somebody may want to know of at once.
func (f *Fleet) lately(now time.Time) []rollout.Brief {
	list := []rollout.Brief{}
	for _, r := range f.Hub.Rollouts() {
		if b := r.Brief(now); !b.Ended() || now.Sub(b.Since) < 24*time.Hour {
			list = append(list, b)
		}
	}
	return list
}

// List holds what GET /v1/nodes answers.
type List struct {
	Nodes []view.Line `json:"nodes"`
	All   int         `json:"all"` // that meet the query
	From  int         `json:"from"`
	Note  string      `json:"note,omitempty"` // which word of the query no node at all meets
}

// Caps on a query.
const (
	MaxListed = 1000 // nodes on a page of a list
	MaxLabels = 16   // that a query names, and as many settings: each is looked for at each node
)

// Asked is a query as an address has it.
type Asked struct {
	view.Query
	Labels     []string // KEY=VALUE
	Set        string
	Settings   []string // KIND/KEY or KIND/KEY=VALUE
	From, Most int
}

var errNoSite = errors.New("labels, sets and settings of nodes are in the site, and this service was started without one: --site names it")

// Parameters are the query parameters of GET /v1/nodes.
var Parameters = []string{"q", "condition", "layer", "version", "sync", "health", "service", "commit", "differs",
	"label", "set", "setting", "sort", "from", "most"}

// Read reads a query of an address, which lists as many nodes as usual where it does not
// say how many. An error is about the query: a word that nothing can meet is one, for the
// empty list that would come of it says that all is well.
func (f *Fleet) Read(v url.Values, usual int) (Asked, error) {
	q := Asked{Set: v.Get("set"), Query: view.Query{Text: v.Get("q"), Condition: view.Condition(v.Get("condition")),
		Layer: v.Get("layer"), Version: v.Get("version"),
		Sync: v.Get("sync"), Health: v.Get("health"), Service: v.Get("service"), Commit: v.Get("commit"), Sort: view.Order(v.Get("sort"))}}
	q.Labels, q.Settings = filled(v["label"]), filled(v["setting"])
	for name := range v {
		if !slices.Contains(Parameters, name) {
			return q, cli.WithHint(fmt.Errorf("unknown parameter %.60q", name),
				cmp.Or(plain.DidYouMean(name, slices.Values(Parameters)), "one of: "+strings.Join(Parameters, ", ")))
		}
	}
	var err error
	if text := v.Get("differs"); text != "" {
		if q.Differs, err = strconv.ParseBool(text); err != nil {
			return q, fmt.Errorf("differs is 1 or 0, not %.60q", text)
		}
	}
	if q.From, err = number("from", v.Get("from"), 0, 1<<30); err != nil {
		return q, err
	}
	if q.Most, err = number("most", v.Get("most"), usual, MaxListed); err != nil {
		return q, err
	}
	if err := q.Check(f.Hub.Nodes()); err != nil {
		return q, err
	}
	switch {
	case len(q.Labels)+len(q.Settings) == 0 && q.Set == "":
		return q, nil
	case f.Site == nil:
		return q, errNoSite
	case len(q.Labels) > MaxLabels:
		return q, fmt.Errorf("more than %d labels", MaxLabels)
	case len(q.Settings) > MaxLabels:
		return q, fmt.Errorf("more than %d settings", MaxLabels)
	}
	names, err := f.Site.Now().Groups().Find(q.Labels, q.Set)
	if err == nil && len(q.Settings) > 0 {
		var having []string
		having, err = f.Site.Having(q.Settings)
		q.Named(having)
		names = slices.DeleteFunc(names, func(name string) bool { return !q.Among[name] })
	}
	q.Named(names)
	return q, err
}

// filled returns the words of fields that somebody filled in.
func filled(words []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "" })
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

// List returns the nodes that meet a query, from one place on.
func (f *Fleet) List(q Asked) List {
	nodes := f.Hub.Nodes()
	l := List{From: q.From}
	if l.Nodes, l.All = view.Select(nodes, q.Query, q.From, q.Most, f.Hub.Now()); l.All == 0 {
		l.Nodes, l.Note = []view.Line{}, q.Nobody(nodes)
	}
	f.label(l.Nodes)
	return l
}

// label adds what the site says of nodes.
func (f *Fleet) label(list []view.Line) {
	if f.Site == nil {
		return
	}
	groups := f.Site.Now().Groups()
	for i := range list {
		list[i].Labels, _ = groups.Where(list[i].Name)
	}
}

// Nodes returns all nodes that meet a query, which is as GET /v1/nodes has it.
func (f *Fleet) Nodes(v url.Values) (List, error) {
	q, err := f.Read(v, MaxListed)
	if err != nil {
		return List{}, err
	}
	q.From, q.Most = 0, len(f.Hub.Nodes())
	return f.List(q), nil
}

// NodeService is a service of one node.
type NodeService struct {
	Name      string `json:"name"`
	Published string `json:"published,omitempty"` // commit; none where it was not sent, or that was not read yet
	Reported  string `json:"reported,omitempty"`  // commit
	Read      bool   `json:"read"`                // what it was sent is known
}

// Node holds what GET /v1/nodes/{node} answers.
type Node struct {
	*hub.Detail
	Labels   []string      `json:"labels,omitempty"` // of the site, each as KEY=VALUE
	Sets     []string      `json:"sets,omitempty"`   // NodeSets of the site that it belongs to
	Services []NodeService `json:"services,omitempty"`
}

// Node returns one node with its services.
func (f *Fleet) Node(ctx context.Context, name string) (Node, error) {
	d, err := f.Hub.Node(ctx, name)
	if errors.Is(err, hub.ErrNoNode) {
		known := plain.Each(f.Hub.Nodes(), func(n view.Judged) string { return n.Name })
		if hint := plain.DidYouMean(name, slices.Values(known)); hint != "" {
			err = cli.WithHint(err, hint)
		}
	}
	if err != nil {
		return Node{}, err
	}
	n := Node{Detail: d}
	if f.Site != nil {
		n.Labels, n.Sets = f.Site.Now().Groups().Where(d.Name)
	}
	var was, says map[string]string
	read := false
	if d.Published != nil {
		was, read = f.sent(d.Published.Overlay)
	}
	if d.Report != nil {
		says = d.Report.Services
	}
	all := map[string]string{}
	maps.Copy(all, was)
	maps.Copy(all, says)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		n.Services = append(n.Services, NodeService{name, was[name], says[name], read})
	}
	return n, nil
}

// Still is something that a machine has as a node, which another machine in its place gets or waits for.
type Still struct {
	What    string `json:"what"` // key, slot, hold, rollout, secrets, known host
	Says    string `json:"says"`
	Command string `json:"command,omitempty"` // that ends it, ready for a shell
}

// Commands write commands as who asks would have to type them.
type Commands struct {
	Looks, Publishes func(verb, more string) string // at the registry of the fleet
	Service          string                         // ends one that takes an operator at the service
}

// Names are the words by which commands say whose fleet they are about, each ready for a shell.
type Names struct {
	Site     string // its files; "" where the service was given keys alone
	Verifies string // by what is verified, as in --site site.yaml
	Signs    string // the keys that sign, as in --key keys/operator.key
}

// NamesOf are the words for a site in a directory, of its files, or without files for keys that are
// trusted. The private halves sign that lie beside the public keys. Names are relative to where the
// site is, since who pastes a command has a copy of it.
func NamesOf(dir string, files, keys []string) Names {
	below := func(name string) string {
		if to, err := filepath.Rel(dir, name); err == nil && filepath.IsLocal(to) {
			return to
		}
		return name
	}
	var sites, verifies, signs []string
	for _, name := range files {
		word := cli.ShellWord(below(name))
		sites, verifies = append(sites, word), append(verifies, "--site "+word)
	}
	for _, key := range keys {
		if len(files) == 0 {
			verifies = append(verifies, "--trust "+cli.ShellWord(key))
		}
		private := strings.TrimSuffix(below(key), ".pub") + ".key" // as 'caisson keys generate' writes it
		signs = append(signs, "--key "+cli.ShellWord(private))
	}
	return Names{Site: strings.Join(sites, " "), Verifies: strings.Join(verifies, " "), Signs: strings.Join(signs, " ")}
}

// Commands writes commands about a site that is published at ref as somebody types them who has its files
// here, and asks the service by a client.
func (n Names) Commands(ref string, at *Client) Commands {
	looks := func(verb, more string) string {
		return "caisson " + verb + " " + cli.ShellWord(ref) + " " + n.Verifies + more
	}
	c := Commands{Looks: looks, Publishes: func(verb, more string) string { return looks(verb, more) + " " + n.Signs }}
	if at.At != "" {
		c.Service += " --at " + cli.ShellWord(at.At)
	}
	if at.TokenFile != "" {
		c.Service += " --token-file " + cli.ShellWord(at.TokenFile)
	}
	return c
}

// Still lists what the machine of a node has, for who replaces it.
func (n Node) Still(rollouts []rollout.State, c Commands) []Still {
	list := []Still{}
	if n.Key != "" {
		s := Still{What: "key", Says: plain.Sprintf("its reports count, by the %s key %s, until another key is accepted", n.Grade, n.Key)}
		if n.Offered != nil {
			s.Says += "; another one reports: accept it where caisson-agent report on the new machine prints it"
			s.Command = "caisson fleet accept " + n.Name + " " + cli.ShellWord(n.Offered.Report.Key) + c.Service
		}
		list = append(list, s)
	}
	for _, l := range n.Slots {
		list = append(list, Still{"slot", plain.Sprintf("of %s, since %s", l.Group, plain.Time(l.Since)),
			"caisson fleet slots release " + cli.ShellWord(l.Group) + " " + n.Name + ` --reason "…"` + c.Service})
	}
	if n.Published != nil {
		for _, h := range n.Published.Holds {
			verb := "forward"
			if h.Kind == spec.HoldPause {
				verb = "resume"
			}
			list = append(list, Still{"hold", plain.Sprintf("%s: %s; it stays for the new machine", h.Kind, h.Reason),
				c.Publishes(verb, " --node "+n.Name)})
		}
	}
	for _, r := range rollouts {
		if (spec.Rollout{Phase: r.Phase}).Ended() {
			continue
		}
		for _, w := range r.Waves {
			if slices.Contains(w.Nodes, n.Name) {
				list = append(list, Still{"rollout", plain.Sprintf(
					"%s, wave %s, which is %s: publish refuses the node until the rollout has ended, or is aborted", r.Name, w.Name, w.State),
					c.Looks("rollout status", " "+cli.ShellWord(r.Name))})
			}
		}
	}
	return list
}

// maxKept bounds a value that is offered to be kept, in bytes: a line is to be read.
const maxKept = 200

// plainKey is a key that YAML takes without quotes.
var plainKey = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9._-]*$`)

// Keep returns the line of a site, below conf:, by which what a node has would be what is wanted of
// it, so that nothing drifts. It is "" where no line says that: nothing is there, the value is not
// the kernel's own text, or it is of a kind whose entries are more than a value.
func Keep(d spec.Drift) string {
	value := strings.Join(strings.Fields(d.From), " ") // sysctl(8) has tabs between the parts of a value
	if value == "" || len(value) > maxKept {
		return ""
	}
	path := []string{d.Key}
	switch d.Item {
	case "sysctl", "sysfs":
	case "ethtool":
		path = strings.Split(d.Key, "/")
		if len(path) != 2 || value != "on" && value != "off" {
			return ""
		}
	case "nics":
		if path = strings.Split(d.Key, "/"); len(path) != 3 {
			return ""
		}
	default:
		return ""
	}
	line, end := d.Item+": ", ""
	for _, key := range path {
		if !plainKey.MatchString(key) {
			key = inQuotes(key)
		}
		line, end = line+"{"+key+": ", end+"}"
	}
	return line + inQuotes(value) + end
}

// inQuotes returns a text as YAML has it in double quotes, which is as JSON has it.
func inQuotes(text string) string {
	quoted, _ := json.Marshal(text) // which every string can be
	return string(quoted)
}
