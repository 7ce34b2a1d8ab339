// Device memory with a limit, filled with poison so that a missing write shows, and copies in stream order.
#include "device.hpp"

#include <sys/mman.h>

#include <cstring>

using namespace soft;

namespace {

constexpr int POISON = 0xA5;
constexpr size_t POISON_LIMIT = 64 << 20;  // larger blocks stay as the system gives them: touching costs
std::mutex g_mutex;
std::map<const char*, size_t> g_device, g_host;
size_t g_used = 0;

size_t limit() { return std::stoull(setting("SOFTWARE_NPU_MEMORY_BYTES", "17179869184")); }

bool inside(const std::map<const char*, size_t>& blocks, const void* pointer) {
    auto place = blocks.upper_bound(static_cast<const char*>(pointer));
    if (place == blocks.begin()) return false;
    --place;
    return pointer < place->first + place->second;
}

}  // namespace

EXPORT aclError aclrtMalloc(void** pointer, size_t size, aclrtMemMallocPolicy) {
    std::lock_guard<std::mutex> lock(g_mutex);
    if (g_used + size > limit()) return OUT_OF_MEMORY;
    void* block = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) return OUT_OF_MEMORY;
    if (size <= POISON_LIMIT) std::memset(block, POISON, size);
    g_device[static_cast<char*>(block)] = size;
    g_used += size;
    *pointer = block;
    return OK;
}
EXPORT aclError aclrtMallocAlign32(void** pointer, size_t size, aclrtMemMallocPolicy policy) {
    return aclrtMalloc(pointer, size, policy);
}
EXPORT aclError aclrtFree(void* pointer) {
    std::lock_guard<std::mutex> lock(g_mutex);
    auto place = g_device.find(static_cast<char*>(pointer));
    if (place == g_device.end()) return INVALID;
    g_used -= place->second;
    munmap(pointer, place->second);
    g_device.erase(place);
    return OK;
}
EXPORT aclError aclrtMallocHost(void** pointer, size_t size) {
    *pointer = std::aligned_alloc(64, (size + 63) / 64 * 64);
    if (!*pointer) return OUT_OF_MEMORY;
    std::lock_guard<std::mutex> lock(g_mutex);
    g_host[static_cast<char*>(*pointer)] = size;
    return OK;
}
EXPORT aclError aclrtFreeHost(void* pointer) {
    std::lock_guard<std::mutex> lock(g_mutex);
    g_host.erase(static_cast<char*>(pointer));
    std::free(pointer);
    return OK;
}
EXPORT aclError aclrtGetMemInfo(aclrtMemAttr, size_t* free, size_t* total) {
    std::lock_guard<std::mutex> lock(g_mutex);
    *total = limit();
    *free = *total - g_used;
    return OK;
}
EXPORT aclError aclrtPointerGetAttributes(const void* pointer, aclrtPtrAttributes* attributes) {
    std::lock_guard<std::mutex> lock(g_mutex);
    std::memset(attributes, 0, sizeof(*attributes));
    attributes->location.type = inside(g_device, pointer) ? ACL_MEM_LOCATION_TYPE_DEVICE
                                : inside(g_host, pointer) ? ACL_MEM_LOCATION_TYPE_HOST
                                                          : ACL_MEM_LOCATION_TYPE_UNREGISTERED;
    return OK;
}

EXPORT aclError aclrtMemcpy(void* to, size_t room, const void* from, size_t size, aclrtMemcpyKind) {
    if (size > room) return INVALID;
    std::memcpy(to, from, size);
    return OK;
}
EXPORT aclError aclrtMemcpyAsync(
    void* to, size_t room, const void* from, size_t size, aclrtMemcpyKind, aclrtStream stream) {
    if (size > room) return INVALID;
    stream_of(stream)->push([=] { std::memcpy(to, from, size); });
    return OK;
}
EXPORT aclError aclrtMemset(void* to, size_t room, int32_t value, size_t size) {
    if (size > room) return INVALID;
    std::memset(to, value, size);
    return OK;
}
EXPORT aclError aclrtMemsetAsync(void* to, size_t room, int32_t value, size_t size, aclrtStream stream) {
    if (size > room) return INVALID;
    stream_of(stream)->push([=] { std::memset(to, value, size); });
    return OK;
}
