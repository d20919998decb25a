// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/caisson-os/caisson/kube/service"
)

// remember notes which slots Nodes have, and at the first look takes the marks that stand and
// that an instance before has written. It counts the Nodes that are being drained.
func (d *Drainer) remember(nodes map[string]*corev1.Node, held map[string]service.Slot, under map[string]map[string]bool) error {
	d.work.mu.Lock()
	defer d.work.mu.Unlock()
	had := map[string]bool{} // no more than there are Nodes and slots
	for name, n := range nodes {
		m, marked := markOf(n)
		has := d.work.had[name+" "+m.Group]
		if marked && d.work.had == nil && time.Since(m.Since) < Believed {
			var err error
			if has, err = d.proven(n, m); err != nil {
				return fmt.Errorf("see who marked Node %s: %w", name, err)
			}
		}
		if marked && has {
			had[name+" "+m.Group] = true
		}
	}
	if d.work.had == nil {
		d.work.at, d.work.waiting = map[string]*drainage{}, map[string]time.Time{}
	}
	for which := range held {
		had[which] = true
	}
	d.work.had = had
	for name, one := range d.work.at {
		count(under, one.slot.Group, name)
	}
	return nil
}

// count adds a Node to those of a group.
func count(under map[string]map[string]bool, group, name string) {
	if under[group] == nil {
		under[group] = map[string]bool{}
	}
	under[group][name] = true
}

// leave reports whether a node is being drained, or is left alone for a while.
func (d *Drainer) leave(name string) bool {
	d.work.mu.Lock()
	defer d.work.mu.Unlock()
	return d.work.at[name] != nil || time.Now().Before(d.work.waiting[name])
}

// groups asks the index about nodes, nobody where none waits.
func (d *Drainer) groups(ctx context.Context, asking []service.Slot) (map[string][]string, error) {
	if len(asking) == 0 {
		return nil, nil
	}
	names := make([]string, len(asking))
	for i, s := range asking {
		names[i] = s.Node
	}
	return d.Index(ctx, names)
}

// refuse says why a node must not be drained, and leaves it alone for a while.
func (d *Drainer) refuse(name string, why error) error {
	d.work.mu.Lock()
	defer d.work.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(d.work.waiting, func(_ string, until time.Time) bool { return now.After(until) })
	d.work.waiting[name] = now.Add(time.Minute)
	return fmt.Errorf("drain Node %.80s: %w", name, why)
}

// controlPlane says that a Node is of the control plane, nil where it is not.
func controlPlane(n *corev1.Node) error {
	for _, label := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"} {
		if _, is := n.Labels[label]; is {
			return errors.New("it is of the control plane, which is drained by hand: 'caisson fleet slots release' lets others have their turn")
		}
	}
	return nil
}
