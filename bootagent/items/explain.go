// SPDX-License-Identifier: Apache-2.0

package items

import (
	"maps"

	"github.com/caisson-os/caisson/spec"
)

// Explain gives a kind the error of the last run where a look finds the same of it:
// a look sees what is not as wanted, and a run knows why.
func (r *Result) Explain(last []spec.ItemStatus, drift []spec.Drift) {
	of := func(list []spec.Drift, kind string) map[wish]string {
		found := map[wish]string{}
		for _, d := range list {
			if d.Item == kind {
				found[wishOf(d)] = d.Action
			}
		}
		return found
	}
	errs := map[string]string{}
	for _, s := range last {
		errs[s.Name] = s.Error
	}
	for n := range r.Items {
		s := &r.Items[n]
		if s.Error != "" && errs[s.Name] != "" && maps.Equal(of(r.Drift, s.Name), of(drift, s.Name)) {
			s.Error = errs[s.Name]
		}
	}
}
