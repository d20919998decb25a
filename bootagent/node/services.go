// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/spec"
)

// Services says where the services of this node stand.
func (n *Node) Services() ([]spec.ServiceStatus, error) {
	found, err := n.effect.Running()
	if err != nil {
		return nil, err
	}
	return n.services.List(&found.Overlay), nil
}

// Hold is what an operator of the node says about a service.
type Hold struct {
	Service string
	Back    bool   // to the commit before
	Reason  string // may be empty
}

// HoldService keeps a service where it is, or takes it to the image that it had before
// and keeps it there. The service acts with the next run.
func (n *Node) HoldService(h Hold) (spec.ServiceStatus, error) {
	return n.changeService(h.Service, func(at spec.Service, k *state.Service) error {
		to := at.Image.Digest
		if h.Back {
			var err error
			if to, err = n.services.ImageBefore(at, k.Images); err != nil {
				return err
			}
		}
		k.Held, k.Reason, k.Since = to, h.Reason, time.Now().Unix()
		return nil
	})
}

// ForwardService has a service follow the overlay again.
func (n *Node) ForwardService(name string) (spec.ServiceStatus, error) {
	return n.changeService(name, func(_ spec.Service, k *state.Service) error {
		k.Held, k.Reason, k.Since = "", "", 0
		return nil
	})
}

func (n *Node) changeService(name string, change func(spec.Service, *state.Service) error) (spec.ServiceStatus, error) {
	found, err := n.effect.Running()
	if err != nil {
		return spec.ServiceStatus{}, err
	}
	all := n.services.Effective(found.Overlay.Services)
	i := slices.IndexFunc(all, func(s spec.Service) bool { return s.Name == name })
	if i < 0 {
		return spec.ServiceStatus{}, fmt.Errorf("this node has no service %q", name)
	}
	kept := n.services.RememberedServices()
	k := kept[name]
	if err := change(all[i], &k); err != nil {
		return spec.ServiceStatus{}, err
	}
	kept[name] = k
	if err := n.session.Folder.SaveServices(kept); err != nil {
		return spec.ServiceStatus{}, err
	}
	st := n.services.List(&found.Overlay)[i]
	n.session.Record("service", events.With("service", name), events.With("tracking", st.Tracking), events.With("commit", st.Commit), events.With("why", k.Reason))
	return st, nil
}
