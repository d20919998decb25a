// SPDX-License-Identifier: Apache-2.0

package query

import (
	"cmp"
	"slices"
	"time"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/spec/site/service"
)

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
	uses := map[string]view.ServiceUse{}
	for _, u := range view.Services(f.Hub.Nodes(), f.sent) {
		uses[u.Name] = u
	}
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
		authored := f.Site.Services()
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
