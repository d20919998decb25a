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
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/report"
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

// FollowedSite is a site as its files have it now. Where they cannot be read the last good ones hold.
// The keys that are trusted are those of the start.
type FollowedSite struct {
	names []string
	files opened // what reading it opened last: only again has it
	lock  func(name string) (*service.Lock, error)
	now   atomic.Pointer[siteNow]
}

type siteNow struct {
	*site.Site
	trouble error // why it is not as its files are

	searching sync.Mutex
	searched  map[string]func() ([]string, error) // by the settings that were asked for: a page is asked again at each report
}

// maxSearched is how many answers are kept.
const maxSearched = 100

// Follow reads a site of the host's files, for the first time; lock reads the lock of its services.
func Follow(files fs.FS, names []string, lock func(name string) (*service.Lock, error)) (*FollowedSite, *report.Report) {
	s := &FollowedSite{names: names, files: opened{files, map[string]fs.FileInfo{}}, lock: lock}
	first, found := site.ParseAt(time.Now(), s.files, names...)
	s.now.Store(&siteNow{Site: first})
	return s, found
}

// Keep reads the site again when its files change, until ctx ends.
func (s *FollowedSite) Keep(ctx context.Context, every time.Duration, say func(format string, args ...any)) {
	for stall.Rest(ctx, every) == nil {
		s.again(say)
	}
}

// again reads the site where one of the files that it was read from is another one. The
// files that were opened decide what came of it, also where that was an error.
func (s *FollowedSite) again(say func(format string, args ...any)) {
	if !s.files.changed() {
		return
	}
	was, files := s.now.Load(), opened{s.files.FS, map[string]fs.FileInfo{}}
	read, found := site.ParseAt(time.Now(), files, s.names...)
	s.files = files
	err := found.Err()
	if err == nil && read.Name() != was.Name() {
		err = fmt.Errorf("the site is for fleet %q, this service serves %q", read.Name(), was.Name())
	}
	if err == nil {
		s.now.Store(&siteNow{Site: read})
		say("the site was read again: it has changed")
		return
	}
	if was.trouble == nil || was.trouble.Error() != err.Error() {
		say("the site has changed and cannot be read; the one read before is used: %v", err)
	}
	s.now.Store(&siteNow{Site: was.Site, trouble: err})
}

// Now returns the site as it was read last.
func (s *FollowedSite) Now() *site.Site { return s.now.Load().Site }

// Having implements [Site]. One search is made at a time.
func (s *FollowedSite) Having(settings []string) ([]string, error) {
	now, asked := s.now.Load(), strings.Join(settings, "\n")
	now.searching.Lock()
	defer now.searching.Unlock()
	answer := now.searched[asked]
	if answer == nil {
		answer = sync.OnceValues(func() ([]string, error) { return now.Site.Having(settings) })
		if len(now.searched) >= maxSearched || now.searched == nil {
			now.searched = map[string]func() ([]string, error){}
		}
		now.searched[asked] = answer
	}
	return answer()
}

// Trouble implements [Site].
func (s *FollowedSite) Trouble() error { return s.now.Load().trouble }

// ServicesLock reads the lock, each time: 'caisson services update' writes it.
func (s *FollowedSite) ServicesLock() (*service.Lock, error) {
	return s.lock(s.Now().Services().LockFile)
}

// opened are files that keep what was opened, and what it was then; nil is a file that could
// not be opened.
type opened struct {
	fs.FS
	was map[string]fs.FileInfo
}

func (o opened) Open(name string) (fs.File, error) {
	f, err := o.FS.Open(name)
	if err != nil {
		o.was[name] = nil
		return nil, err
	}
	if o.was[name], err = f.Stat(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// changed reports whether a file is another one by now. One that is there and could not
// be opened counts as changed: its mode may be another one.
func (o opened) changed() bool {
	for name, was := range o.was {
		is, err := os.Stat(name)
		if (was == nil) != (err != nil) {
			return true
		}
		if was != nil && (!os.SameFile(was, is) || !was.ModTime().Equal(is.ModTime()) || was.Size() != is.Size()) {
			return true
		}
	}
	return false
}
