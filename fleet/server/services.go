// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/caisson-os/caisson/fleet/heads"
	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/nearest"
	"github.com/caisson-os/caisson/spec/site/service"
)

// Sent says which commits of services overlays bring, as far as they were read.
type Sent interface {
	Services(overlay string) (commits map[string]string, read bool)
	Left() (overlays int, trouble error) // that were not read yet, and what was in the way
}

// Heads says what git has for services, as far as it was asked.
type Heads interface {
	Head(s *service.Service) (heads.Head, bool)
}

// Service is where one service stands: what the site says, and what nodes have.
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

// Services is what GET /v1/services answers.
type Services struct {
	Services []Service `json:"services"`
	Site     bool      `json:"site"`              // the service has a site: its services are in the list, nodes or not
	Left     int       `json:"left,omitempty"`    // nodes whose overlay was not read yet: what they were sent is not counted
	Trouble  string    `json:"trouble,omitempty"` // why something could not be read
}

// sent returns the commits that an overlay brings, by service.
func (s *Server) sent(overlay string) (map[string]string, bool) {
	if s.o.Sent == nil {
		return nil, false
	}
	return s.o.Sent.Services(overlay)
}

func (s *Server) services() Services {
	out := Services{Services: []Service{}, Site: s.o.Site != nil}
	uses := map[string]view.ServiceUse{}
	for _, u := range view.Services(s.o.Hub.Nodes(), s.sent) {
		uses[u.Name] = u
	}
	if s.o.Sent != nil {
		left, err := s.o.Sent.Left()
		if out.Left = left; err != nil {
			out.Trouble = err.Error()
		}
	}
	if out.Site {
		lock, err := s.o.Site.ServicesLock()
		if err != nil {
			out.Trouble, lock = err.Error(), service.NewLock()
		}
		authored := s.o.Site.Services()
		for i := range authored {
			v := &authored[i]
			one := Service{ServiceUse: view.ServiceUse{Name: v.Name, Published: []view.CommitUse{}, Reported: []view.CommitUse{}}, Unit: v.Unit, URL: v.Git.URL, Ref: v.Git.Ref()}
			if u, ok := uses[v.Name]; ok {
				one.ServiceUse = u
				delete(uses, v.Name)
			}
			if s.o.Heads != nil {
				if head, asked := s.o.Heads.Head(v); asked {
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

func (s *Server) getServices(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, http.StatusOK, s.services())
}

func (s *Server) servicesPage(*http.Request) (int, any, error) {
	return http.StatusOK, s.services(), nil
}

// NodeService is a service of one node.
type NodeService struct {
	Name      string `json:"name"`
	Published string `json:"published,omitempty"` // commit; none where it was not sent, or that was not read yet
	Reported  string `json:"reported,omitempty"`  // commit
	Read      bool   `json:"read"`                // what it was sent is known
}

// Node is what GET /v1/nodes/{node} answers.
type Node struct {
	*hub.Detail
	Labels   []string      `json:"labels,omitempty"` // of the site, each as KEY=VALUE
	Sets     []string      `json:"sets,omitempty"`   // NodeSets of the site that it belongs to
	Services []NodeService `json:"services,omitempty"`
}

// Node returns one node with its services.
func (s *Server) Node(ctx context.Context, name string) (Node, error) {
	d, err := s.o.Hub.Node(ctx, name)
	if errors.Is(err, hub.ErrNoNode) {
		known := func(yield func(string) bool) {
			for _, n := range s.o.Hub.Nodes() {
				if !yield(n.Name) {
					return
				}
			}
		}
		if like := nearest.Word(name, known); like != "" {
			err = cli.WithHint(err, "did you mean "+like+"?")
		}
	}
	if err != nil {
		return Node{}, err
	}
	n := Node{Detail: d}
	if s.o.Site != nil {
		n.Labels, n.Sets = s.o.Site.Where(d.Name)
	}
	var was, says map[string]string
	read := false
	if d.Published != nil {
		was, read = s.sent(d.Published.Overlay)
	}
	if d.Report != nil {
		says = d.Report.Services
	}
	for name, commit := range was {
		n.Services = append(n.Services, NodeService{name, commit, says[name], read})
	}
	for name, commit := range says {
		if _, sent := was[name]; !sent {
			n.Services = append(n.Services, NodeService{name, "", commit, read})
		}
	}
	slices.SortFunc(n.Services, func(a, b NodeService) int { return cmp.Compare(a.Name, b.Name) })
	return n, nil
}
