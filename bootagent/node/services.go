// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/spec"
)

// Services says where the services of this node stand.
func (n *Node) Services() ([]spec.ServiceStatus, error) {
	return running(n, func(f *track.Found) ([]spec.ServiceStatus, error) { return n.services.List(&f.Overlay), nil })
}

// FreezeService keeps a service at the image that it has.
func (n *Node) FreezeService(name, reason string) (spec.ServiceStatus, error) {
	return running(n, func(f *track.Found) (spec.ServiceStatus, error) { return n.services.Freeze(&f.Overlay, name, reason) })
}

// RollbackService takes a service to the image that it had before, and keeps it there.
func (n *Node) RollbackService(name, reason string) (spec.ServiceStatus, error) {
	return running(n, func(f *track.Found) (spec.ServiceStatus, error) { return n.services.Rollback(&f.Overlay, name, reason) })
}

// ForwardService has a service follow the overlay again.
func (n *Node) ForwardService(name string) (spec.ServiceStatus, error) {
	return running(n, func(f *track.Found) (spec.ServiceStatus, error) { return n.services.Forward(&f.Overlay, name) })
}
