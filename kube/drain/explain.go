// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// flags are those of caisson-kube for the ones of kubectl that its library names in errors.
var flags = strings.NewReplacer("--delete-emptydir-data", "--drain-delete-emptydir", "--force", "--drain-force")

// refused says why no pod of a Node was touched, nil where none refused.
func refused(errs []error) error {
	for i, err := range errs {
		if text := flags.Replace(err.Error()); text != err.Error() {
			errs[i] = errors.New(text)
		}
	}
	return errors.Join(errs...)
}

// explain says why pods are not gone that were evicted since a time: the library names the
// pods, and neither the deadline nor what keeps a pod that is to end.
func (d *Drainer) explain(ctx context.Context, began time.Time, pods []corev1.Pod, err error) error {
	if time.Since(began) < d.Policy.Timeout {
		return err
	}
	err = fmt.Errorf("not drained within %s: %w", d.Policy.Timeout, err)
	for _, p := range pods {
		now, failed := d.Client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(failed) || failed == nil && now.UID != p.UID:
		case failed != nil:
			return errors.Join(err, fmt.Errorf("read pod %s/%s: %w", p.Namespace, p.Name, failed))
		case now.DeletionTimestamp != nil && len(now.Finalizers) > 0:
			err = errors.Join(err, fmt.Errorf("pod %s/%s waits for its finalizers: %s", p.Namespace, p.Name, strings.Join(now.Finalizers, ", ")))
		}
	}
	return err
}
