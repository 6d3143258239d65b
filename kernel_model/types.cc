// SPDX-License-Identifier: Apache-2.0
//
// Names of errno values.
#include "kernel_model/types.h"

namespace faultline::kernel {

std::string_view errno_name(Errno e) {
  switch (e) {
    case Errno::kOk:
      return "0";
    case Errno::kEPERM:
      return "EPERM";
    case Errno::kESRCH:
      return "ESRCH";
    case Errno::kEINTR:
      return "EINTR";
    case Errno::kENXIO:
      return "ENXIO";
    case Errno::kEBADF:
      return "EBADF";
    case Errno::kEAGAIN:
      return "EAGAIN";
    case Errno::kENOMEM:
      return "ENOMEM";
    case Errno::kEACCES:
      return "EACCES";
    case Errno::kEFAULT:
      return "EFAULT";
    case Errno::kEBUSY:
      return "EBUSY";
    case Errno::kEEXIST:
      return "EEXIST";
    case Errno::kENODEV:
      return "ENODEV";
    case Errno::kEINVAL:
      return "EINVAL";
    case Errno::kENOSYS:
      return "ENOSYS";
    case Errno::kEHWPOISON:
      return "EHWPOISON";
  }
  return "E?";
}

}  // namespace faultline::kernel
