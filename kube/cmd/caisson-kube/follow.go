// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/caisson-os/caisson/kube/drain"
	"github.com/caisson-os/caisson/kube/metrics"
	"github.com/caisson-os/caisson/kube/nodes"
	"github.com/caisson-os/caisson/kube/service"
)

// follow adds what is done for each fleet whose service is known, and returns these by their
// namespaces.
func (o *options) follow(mgr ctrl.Manager, seen *metrics.Metrics) (map[string]*service.Client, error) {
	services := map[string]*service.Client{}
	for _, one := range o.fleets {
		namespace, address, ok := strings.Cut(one, "=")
		if !ok {
			return nil, fmt.Errorf("--fleet %s: write NAMESPACE=URL", one)
		}
		s, err := o.service(namespace, address)
		if err != nil {
			return nil, err
		}
		services[namespace] = s
		events := mgr.GetEventRecorder("caisson-kube")
		m := &nodes.Mirror{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: events, Source: s, Namespace: namespace, Pace: rate.NewLimiter(rate.Limit(o.pace), 1), Settle: 5 * time.Second, Every: time.Minute, Check: 10 * time.Minute, Now: time.Now, Wrote: seen.Wrote}
		if err := mgr.Add(m); err != nil {
			return nil, err
		}
		if !o.drains {
			continue
		}
		set, err := kubernetes.NewForConfig(mgr.GetConfig())
		if err != nil {
			return nil, err
		}
		if err := mgr.Add(&drain.Drainer{Client: set, Nodes: mgr.GetClient(), Events: events, Slots: s, Namespace: namespace, Alone: len(o.fleets) == 1, Policy: o.drain, Every: 10 * time.Second, Again: 10 * time.Minute, Seen: seen.Drained}); err != nil {
			return nil, err
		}
	}
	return services, nil
}
