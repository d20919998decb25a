// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/spec"
)

// Freeze keeps a service of an overlay at the image that it has, for a reason that may be
// empty.
func (sv *Services) Freeze(o *spec.Overlay, name, reason string) (spec.ServiceStatus, error) {
	return sv.change(o, name, func(at spec.Service, k *state.Service) error {
		k.Held, k.Reason, k.Since = at.Image.Digest, reason, time.Now().Unix()
		return nil
	})
}

// Rollback keeps a service at the image that it had before. The service acts with the next
// run.
func (sv *Services) Rollback(o *spec.Overlay, name, reason string) (spec.ServiceStatus, error) {
	return sv.change(o, name, func(at spec.Service, k *state.Service) error {
		to, err := sv.imageBefore(at, k.Images)
		if err != nil {
			return err
		}
		k.Held, k.Reason, k.Since = to, reason, time.Now().Unix()
		return nil
	})
}

// Forward has a service follow its overlay again.
func (sv *Services) Forward(o *spec.Overlay, name string) (spec.ServiceStatus, error) {
	return sv.change(o, name, func(_ spec.Service, k *state.Service) error {
		k.Held, k.Reason, k.Since = "", "", 0
		return nil
	})
}

// change changes what is remembered of a service, and returns where it stands then.
func (sv *Services) change(o *spec.Overlay, name string, change func(spec.Service, *state.Service) error) (spec.ServiceStatus, error) {
	all := sv.Effective(o.Services)
	i := slices.IndexFunc(all, func(s spec.Service) bool { return s.Name == name })
	if i < 0 {
		return spec.ServiceStatus{}, fmt.Errorf("this node has no service %q", name)
	}
	kept := sv.RememberedServices()
	k := kept[name]
	if err := change(all[i], &k); err != nil {
		return spec.ServiceStatus{}, err
	}
	kept[name] = k
	if err := sv.Folder.SaveServices(kept); err != nil {
		return spec.ServiceStatus{}, err
	}
	st := sv.List(o)[i]
	sv.Log("service", events.With("service", name), events.With("tracking", st.Tracking), events.With("commit", st.Commit), events.With("why", k.Reason))
	return st, nil
}

// imageBefore is the image that a service had before the one that it is at.
func (sv *Services) imageBefore(at spec.Service, images []string) (string, error) {
	signed := sv.signedOverlays()
	for _, d := range images[slices.Index(images, at.Image.Digest)+1:] {
		if _, _, ok := signed.service(at.Name, d); ok {
			return d, nil
		}
	}
	return "", fmt.Errorf("service %s has no earlier image to roll back to", at.Name)
}
