// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/caisson-os/caisson/kube/drain"
	"github.com/caisson-os/caisson/kube/metrics"
	"github.com/caisson-os/caisson/kube/nodes"
	"github.com/caisson-os/caisson/kube/service"
	"github.com/caisson-os/caisson/kube/sites"
)

// follow adds what is done for each fleet whose service is known, and returns these by their
// namespaces.
func (o *options) follow(mgr ctrl.Manager, r *sites.Reconciler, seen *metrics.Metrics) (map[string]*service.Client, error) {
	services, sources := map[string]*service.Client{}, map[string]nodes.Source{}
	fleets, err := named(o.fleets, "fleet", "URL")
	if err != nil {
		return nil, err
	}
	for namespace, address := range fleets {
		s, err := o.service(namespace, address)
		if err != nil {
			return nil, err
		}
		services[namespace], sources[namespace] = s, s
	}
	events := mgr.GetEventRecorder("caisson-kube")
	for _, m := range o.mirrors(nodes.Mirror{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: events,
		Wrote: seen.Wrote, Conditions: o.conditions}, sources) {
		if err := mgr.Add(m); err != nil {
			return nil, err
		}
	}
	if !o.drains {
		return services, nil
	}
	set, err := kubernetes.NewForConfig(mgr.GetConfig())
	if err != nil {
		return nil, err
	}
	for _, namespace := range slices.Sorted(maps.Keys(services)) {
		index := func(ctx context.Context, nodes []string) (map[string][]string, error) {
			return r.Groups(ctx, namespace, nodes)
		}
		d := &drain.Drainer{Client: set, Nodes: mgr.GetClient(), Events: events, Slots: services[namespace], Index: index,
			Most: o.drainMost, Namespace: namespace, Alone: len(services) == 1, Policy: o.drain, Every: 10 * time.Second,
			Again: 10 * time.Minute, Patience: 15 * time.Minute, Seen: seen.Drained}
		if err := mgr.Add(d); err != nil {
			return nil, err
		}
	}
	return services, nil
}

// mirrors are those of all fleets, made of what they have in common. What an API server has to
// take from this process is bounded for all of them together.
func (o *options) mirrors(common nodes.Mirror, sources map[string]nodes.Source) (out []*nodes.Mirror) {
	common.Pace = rate.NewLimiter(rate.Limit(o.pace), 1)
	common.Settle, common.Every, common.Check, common.Now = 5*time.Second, time.Minute, 10*time.Minute, time.Now
	for _, namespace := range slices.Sorted(maps.Keys(sources)) {
		m := common
		m.Namespace, m.Source = namespace, sources[namespace]
		out = append(out, &m)
	}
	return out
}
