// SPDX-License-Identifier: Apache-2.0

package node

import "github.com/caisson-os/caisson/spec"

// Services says where the services of this node stand.
func (n *Node) Services() ([]spec.ServiceStatus, error) {
	found, err := n.effect.Running()
	if err != nil {
		return nil, err
	}
	return n.services.List(&found.Overlay), nil
}

// FreezeService keeps a service at the image that it has.
func (n *Node) FreezeService(name, reason string) (spec.ServiceStatus, error) {
	found, err := n.effect.Running()
	if err != nil {
		return spec.ServiceStatus{}, err
	}
	return n.services.Freeze(&found.Overlay, name, reason)
}

// RollbackService takes a service to the image that it had before, and keeps it there.
func (n *Node) RollbackService(name, reason string) (spec.ServiceStatus, error) {
	found, err := n.effect.Running()
	if err != nil {
		return spec.ServiceStatus{}, err
	}
	return n.services.Rollback(&found.Overlay, name, reason)
}

// ForwardService has a service follow the overlay again.
func (n *Node) ForwardService(name string) (spec.ServiceStatus, error) {
	found, err := n.effect.Running()
	if err != nil {
		return spec.ServiceStatus{}, err
	}
	return n.services.Forward(&found.Overlay, name)
}
