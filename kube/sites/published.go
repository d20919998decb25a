// SPDX-License-Identifier: Apache-2.0

package sites

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/spec/site/cluster"
)

// Published reads what is published of a namespace's fleet, by the keys beside caisson-kube. The
// registry is that of the Site, or of Registries where the site is not objects. Of the objects it
// reads nothing else: one that is not valid keeps nobody from asking.
func (r *Reconciler) Published(ctx context.Context, namespace string) (*publish.Fleet, error) {
	sites, err := r.list(ctx, cluster.Site, client.InNamespace(namespace))
	if err != nil {
		return nil, err
	}
	head := map[string]any{"apiVersion": cluster.Group + "/" + cluster.Version, "kind": cluster.Site,
		"metadata": map[string]any{"name": namespace}, "registry": r.Registries[namespace]}
	if len(sites) == 1 {
		head["metadata"] = map[string]any{"name": sites[0].GetName()}
		if head["registry"] == "" {
			head["registry"], _, _ = unstructured.NestedString(sites[0].Object, "registry") // the definition makes it a text
		}
	}
	if head["registry"] == "" {
		return nil, fmt.Errorf("which nodes are published is not known: the namespace %s has not one Site with a registry, "+
			"and no --registry names it", namespace)
	}
	dir := filepath.Join(r.Dir, namespace)
	s, problems := cluster.Reader{Files: hostFiles{},
		Keys: cluster.KeysBeside(hostFiles{}, dir)}.Parse(cluster.Day(r.Now()), dir, nil, []cluster.Object{cluster.ObjectOf(head)})
	if s == nil {
		return nil, errors.New(text(problems[0]))
	}
	p, err := policy.Site(s, "")
	if err != nil {
		return nil, fmt.Errorf("whose keys count is said beside caisson-kube: %w", err)
	}
	if len(sites) != 1 {
		p.Fleet = "" // the index says it
	}
	registry, err := r.Open(s.Registry())
	if err != nil {
		return nil, err
	}
	seen, err := publish.OpenMemory(filepath.Join(r.State, namespace+".memory"))
	if err != nil {
		return nil, err
	}
	return (&publish.Publisher{Registry: registry, Now: r.time(), Clock: r.time, Memory: seen, Say: func(string, ...any) {}}).Find(ctx, p)
}

// Groups returns the groups of slots that published nodes have, each by its verified overlay, and
// nothing of a node that is not published. With an error it returns those that could be read.
func (r *Reconciler) Groups(ctx context.Context, namespace string, nodes []string) (map[string][]string, error) {
	f, err := r.Published(ctx, namespace)
	if err != nil {
		return nil, err
	}
	out, failed := map[string][]string{}, []error(nil)
	for _, name := range nodes {
		if _, ok, err := f.Row(ctx, name); err != nil || !ok {
			failed = append(failed, err)
			continue
		}
		o, err := f.Overlay(ctx, name)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		out[name] = nil
		if o.Maintenance != nil {
			out[name] = slices.Collect(maps.Keys(o.Maintenance.Slots))
		}
	}
	return out, errors.Join(failed...)
}
