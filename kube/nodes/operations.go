// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/kube/sites"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/cluster"
)

// maxNote is the longest text that is taken over: an Event takes 1024 bytes.
const maxNote = 900

// short is a text of the service, which may say anything.
func short(text string) string {
	if len(text) > maxNote {
		text = strings.ToValidUTF8(text[:maxNote], "") + " …"
	}
	return text
}

// ended asks which operations of a node ended since that was written down last, and notes
// the last of them. What ended before the node had an object is noted, and not told.
func (m *Mirror) ended(ctx context.Context, l view.Line, was cluster.FleetNodeStatus, there bool,
	next *cluster.FleetNodeStatus) ([]spec.OperationStatus, error) {
	next.Operation, next.Ended = was.Operation, was.Ended
	before, _ := time.Parse(time.RFC3339Nano, was.Ended) // zero where none had, or somebody wrote nonsense
	if !l.Ended.After(before) {
		return nil, nil
	}
	if err := m.Pace.Wait(ctx); err != nil {
		return nil, err
	}
	all, err := m.Source.Operations(ctx, l.Name)
	if err != nil {
		return nil, fmt.Errorf("ask what the operations of %s came to: %w", l.Name, err)
	}
	all = slices.DeleteFunc(slices.Clone(all), func(o spec.OperationStatus) bool {
		at, _ := o.Ended()
		return !at.After(before)
	})
	slices.SortFunc(all, func(a, b spec.OperationStatus) int {
		x, _ := a.Ended()
		y, _ := b.Ended()
		return cmp.Or(x.Compare(y), cmp.Compare(a.Name, b.Name))
	})
	if len(all) == 0 { // it reported again meanwhile
		return nil, nil
	}
	last := all[len(all)-1]
	at, _ := last.Ended()
	next.Operation, next.Ended = note(last), at.UTC().Format(time.RFC3339Nano)
	if !there {
		return nil, nil
	}
	return all, nil
}

// note says what an operation came to.
func note(o spec.OperationStatus) string {
	says := "done"
	if _, failed := o.Ended(); failed {
		says = "failed"
	}
	if o.Detail != "" {
		says += ": " + strings.ReplaceAll(strings.TrimSpace(o.Detail), "\n", "; ")
	}
	return short(o.Name + " " + says)
}

// tell makes Events of operations that ended: of the FleetNode, and of the NodeMaintenance
// that has the operation.
func (m *Mirror) tell(ctx context.Context, node *unstructured.Unstructured, ended []spec.OperationStatus) error {
	for _, o := range ended {
		kind, reason := corev1.EventTypeNormal, "OperationDone"
		if _, failed := o.Ended(); failed {
			kind, reason = corev1.EventTypeWarning, "OperationFailed"
		}
		if err := m.Pace.Wait(ctx); err != nil {
			return err
		}
		m.Events.Eventf(node, nil, kind, reason, "Operate", "%s", note(o))
		name, _, has := strings.Cut(o.Name, "/")
		if !has { // of the layer, not of a NodeMaintenance
			continue
		}
		u := sites.Object(cluster.NodeMaintenance, m.Namespace, name)
		err := m.Client.Get(ctx, client.ObjectKeyFromObject(u), u)
		if apierrors.IsNotFound(err) {
			continue // it is not kept as an object, or not any more
		}
		if err != nil {
			return fmt.Errorf("read NodeMaintenance %s: %w", name, err)
		}
		if err := m.Pace.Wait(ctx); err != nil {
			return err
		}
		m.Events.Eventf(u, node, kind, reason, "Operate", "on %s: %s", node.GetName(), note(o))
	}
	return nil
}
