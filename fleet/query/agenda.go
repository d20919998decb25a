// SPDX-License-Identifier: Apache-2.0

package query

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/service"
)

// Agenda says when nodes may be disturbed in the next days, by what was signed for them.
type Agenda struct {
	Days    []time.Time // midnights in UTC; the first is today's
	Groups  []WindowGroup
	More    int // nodes that Groups has no room for
	Without int // nodes without windows
	Left    int // nodes whose overlay was not read yet
}

// WindowGroup is nodes whose windows open alike.
type WindowGroup struct {
	Nodes   int
	Names   []string  // the first of them
	Ends    time.Time // nothing is known from then on; zero where that is later than the last day
	Windows []Opening
}

// Opening is a window with when it is open: by day of the agenda, with what is open over midnight on
// the day that it opens.
type Opening struct {
	Name string
	Days [][]Open
}

// Open is an interval in which a window is open.
type Open struct {
	spec.Interval
	Long bool // it does not end within a day
}

// Bounds of an agenda.
const (
	agendaDays  = 7
	maxAgenda   = 100 // groups
	maxNames    = 12  // of a group
	maxOpenings = 24  // of a window on one day
)

// Agenda returns the windows of all nodes that are published: those of most nodes first.
func (f *Fleet) Agenda() Agenda {
	now := f.Hub.Now().UTC()
	var a Agenda
	for i := range agendaDays {
		a.Days = append(a.Days, now.Truncate(24*time.Hour).AddDate(0, 0, i))
	}
	groups, seen := map[string]*WindowGroup{}, map[*spec.Maintenance]*WindowGroup{}
	for _, n := range f.Hub.Nodes() {
		if n.Published == nil || f.Sent == nil {
			continue
		}
		m, read := f.Sent.Windows(n.Published.Overlay)
		switch {
		case !read:
			a.Left++
			continue
		case m == nil || len(m.Windows) == 0:
			a.Without++
			continue
		}
		g := seen[m]
		if g == nil {
			made := a.group(m, now)
			key := fmt.Sprint(made.Ends, made.Windows)
			if g = groups[key]; g == nil {
				g, groups[key] = made, made
			}
			seen[m] = g
		}
		if g.Nodes++; len(g.Names) < maxNames {
			g.Names = append(g.Names, n.Name)
		}
	}
	for _, g := range groups {
		a.Groups = append(a.Groups, *g)
	}
	slices.SortFunc(a.Groups, func(x, y WindowGroup) int {
		return cmp.Or(cmp.Compare(y.Nodes, x.Nodes), plain.Natural(x.Names[0], y.Names[0]))
	})
	for _, g := range a.Groups[min(len(a.Groups), maxAgenda):] {
		a.More += g.Nodes
	}
	a.Groups = a.Groups[:min(len(a.Groups), maxAgenda)]
	return a
}

// group returns when the windows of a node are open from now on, within the days of the agenda.
func (a Agenda) group(m *spec.Maintenance, now time.Time) *WindowGroup {
	end := a.Days[agendaDays-1].AddDate(0, 0, 1)
	g := &WindowGroup{}
	if m.Horizon.Before(end) {
		g.Ends = m.Horizon
	}
	for name, w := range m.Windows {
		o := Opening{name, make([][]Open, agendaDays)}
		for _, i := range w.Intervals {
			if !i.To.After(now) || !i.From.Before(end) {
				continue
			}
			day := max(0, int(i.From.Sub(a.Days[0])/(24*time.Hour)))
			if len(o.Days[day]) < maxOpenings {
				o.Days[day] = append(o.Days[day], Open{i, i.To.Sub(i.From) > 24*time.Hour})
			}
		}
		g.Windows = append(g.Windows, o)
	}
	slices.SortFunc(g.Windows, func(x, y Opening) int { return plain.Natural(x.Name, y.Name) })
	return g
}

// Service says where one service stands: what the site says, and what nodes have.
type Service struct {
	view.ServiceUse
	Unit   string          `json:"unit,omitempty"` // this and the next are the site's
	URL    string          `json:"url,omitempty"`
	Ref    string          `json:"ref,omitempty"`    // branch main
	Head   string          `json:"head,omitempty"`   // commit that git has, as of Asked
	Asked  time.Time       `json:"asked,omitzero"`   // when git said so
	NoHead string          `json:"noHead,omitempty"` // why git has not answered since
	Locked string          `json:"locked,omitempty"`
	Stale  string          `json:"stale,omitempty"` // why the lock does not count
	Frozen *service.Frozen `json:"frozen,omitempty"`
}

// Services holds what GET /v1/services answers.
type Services struct {
	Services []Service `json:"services"`
	Site     bool      `json:"site"`              // the service has a site: its services are in the list, nodes or not
	Left     int       `json:"left,omitempty"`    // nodes whose overlay was not read yet: what they were sent is not counted
	Trouble  string    `json:"trouble,omitempty"` // why something could not be read
}

// sent returns the commits that an overlay brings, by service.
func (f *Fleet) sent(overlay string) (map[string]string, bool) {
	if f.Sent == nil {
		return nil, false
	}
	return f.Sent.Services(overlay)
}

// Services returns the services of the site and of nodes.
func (f *Fleet) Services() Services {
	out := Services{Services: []Service{}, Site: f.Site != nil}
	uses := plain.Map(view.Services(f.Hub.Nodes(), f.sent), func(u view.ServiceUse) (string, view.ServiceUse) { return u.Name, u })
	if f.Sent != nil {
		left, err := f.Sent.Left()
		if out.Left = left; err != nil {
			out.Trouble = err.Error()
		}
	}
	if out.Site {
		lock, err := f.Site.ServicesLock()
		if err != nil {
			out.Trouble, lock = err.Error(), service.NewLock()
		}
		authored := f.Site.Now().Services().List
		for i := range authored {
			v := &authored[i]
			one := Service{ServiceUse: view.ServiceUse{Name: v.Name, Published: []view.CommitUse{},
				Reported: []view.CommitUse{}}, Unit: v.Unit, URL: v.Git.URL, Ref: v.Git.Ref()}
			if u, ok := uses[v.Name]; ok {
				one.ServiceUse = u
				delete(uses, v.Name)
			}
			if f.Heads != nil {
				if head, asked := f.Heads.Head(v); asked {
					one.Head, one.Asked = head.Commit, head.At
					if head.Trouble != nil {
						one.NoHead = head.Trouble.Error()
					}
				}
			}
			if l, ok := lock.Services[v.Name]; ok {
				one.Locked, one.Stale, one.Frozen = l.Commit, l.Stale(v), l.Frozen
			}
			out.Services = append(out.Services, one)
		}
	}
	for _, u := range uses { // of another site, or of none
		out.Services = append(out.Services, Service{ServiceUse: u})
	}
	slices.SortFunc(out.Services, func(a, b Service) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
